package front

import (
	"context"
	"net/http"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/principal"
)

type deliveryKey struct{}

// withDelivery checks the delivery session of a request and returns the request with it in
// its context. An invalid token is a 401, although the request would be served without one.
func (d *Door) withDelivery(w http.ResponseWriter, r *http.Request, who *principal.Principal, path string) (*http.Request, bool) {
	if d.o.Delivery == nil || len(r.Header[protocol.HeaderSession]) == 0 {
		return r, true
	}
	id, err := d.o.Delivery(r, who)
	if err != nil {
		w.Header().Set("WWW-Authenticate", refusals{d}.challenge(path, "invalid_token", ""))
		refusals{d}.refuse(w, r, http.StatusUnauthorized, err)
		return nil, false
	}
	return r.WithContext(context.WithValue(r.Context(), deliveryKey{}, id)), true
}

// delivery returns the id of the delivery session that withDelivery found; empty: none.
func delivery(r *http.Request) string {
	if len(r.Header[protocol.HeaderSession]) == 0 {
		return ""
	}
	id, _ := r.Context().Value(deliveryKey{}).(string)
	return id
}

// other serves the routes of Options.Paths.
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
