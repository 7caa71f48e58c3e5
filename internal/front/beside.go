package front

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/principal"
)

// instructionPaths are the routes of instruction delivery, whose errors are
// problem documents (RFC 9457) whoever finds them.
const instructionPaths = "/auth/"

// refusal answers a request that the door has refused. Its body is constant,
// whatever was wrong.
func refusal(w http.ResponseWriter, path string, status int) {
	code := map[int]string{http.StatusBadRequest: "malformed", http.StatusUnauthorized: "unauthenticated",
		http.StatusForbidden: "not_permitted", http.StatusTooManyRequests: "rate_limited", http.StatusServiceUnavailable: "unavailable"}[status]
	if code == "" || !strings.HasPrefix(path, instructionPaths) {
		plain(w, status)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"type\":\"about:blank\",\"title\":%q,\"status\":%d,\"code\":%q}\n", http.StatusText(status), status, code)
}

type deliveryKey struct{}

// withDelivery checks the instruction session that comes with a request, and
// gives the request that remembers it. One that is not good is a 401: who
// presents a token means it.
func (d *Door) withDelivery(w http.ResponseWriter, r *http.Request, who *principal.Principal, path string) (*http.Request, bool) {
	if d.o.Delivery == nil || len(r.Header["Doorward-Session"]) == 0 {
		return r, true
	}
	id, err := d.o.Delivery(r, who)
	if err != nil {
		w.Header().Set("WWW-Authenticate", d.challenge(path, "invalid_token", ""))
		d.refuse(w, r, http.StatusUnauthorized, err)
		return nil, false
	}
	return r.WithContext(context.WithValue(r.Context(), deliveryKey{}, id)), true
}

// delivery is the instruction session that withDelivery found.
func delivery(r *http.Request) string {
	id, _ := r.Context().Value(deliveryKey{}).(string)
	return id
}

// other serves what is not MCP.
func (d *Door) other(w http.ResponseWriter, r *http.Request, who *principal.Principal, path string) {
	if f := d.o.Paths[path]; f != nil {
		f(w, r, who)
		return
	}
	for i := len(path) - 1; i > 0; i-- {
		if path[i] != '/' {
			continue
		}
		if f := d.o.Paths[path[:i+1]]; f != nil {
			f(w, r, who)
			return
		}
	}
	plain(w, http.StatusNotFound)
}
