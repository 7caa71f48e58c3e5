package front

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// ErrLimited is an Authenticate error: too many failures from one source.
var ErrLimited = errors.New("too many failed attempts")

// Limited is ErrLimited with the time after which it is no longer so.
type Limited struct{ RetryAfter int } // seconds

func (l Limited) Error() string { return ErrLimited.Error() }

// Is makes it an ErrLimited.
func (l Limited) Is(target error) bool { return target == ErrLimited }

// refusals answers requests that are refused at the door, and says where a token
// can be had.
type refusals struct{ d *Door }

func (f refusals) unauthenticated(w http.ResponseWriter, r *http.Request, path string, err error) {
	status := http.StatusUnauthorized
	switch {
	case errors.Is(err, ErrLimited):
		l := Limited{RetryAfter: 1}
		errors.As(err, &l)
		w.Header().Set("Retry-After", strconv.Itoa(l.RetryAfter))
		status = http.StatusTooManyRequests
	case errors.Is(err, ErrUnavailable):
		w.Header().Set("Retry-After", "5")
		status = http.StatusServiceUnavailable
	case errors.Is(err, ErrMalformed):
		status = http.StatusBadRequest
		w.Header().Set("WWW-Authenticate", f.challenge(path, "invalid_request", ""))
	default:
		code := ""
		if presented(r) {
			code = "invalid_token"
		}
		w.Header().Set("WWW-Authenticate", f.challenge(path, code, f.basic()))
	}
	f.refuse(w, r, status, err)
}

func (f refusals) refuse(w http.ResponseWriter, r *http.Request, status int, reason error) {
	f.d.o.Refused(r, status, reason)
	path, _, _ := strings.Cut(r.RequestURI, "?")
	refusal(w, path, status)
}

// plain answers with a status and its constant text.
func plain(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write([]byte(http.StatusText(status) + "\n"))
}

// instructionPaths are the routes of instruction delivery. Their errors are
// problem documents (RFC 9457), whichever package makes them.
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
