package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/trust/principal"
)

// ErrLimited is an error of Authenticate: too many failures from one source.
var ErrLimited = errors.New("too many failed attempts")

// Limited is an ErrLimited with the time to wait.
type Limited struct{ RetryAfter int } // seconds

func (l Limited) Error() string { return ErrLimited.Error() }

// Is reports that the error is an ErrLimited.
func (l Limited) Is(target error) bool { return target == ErrLimited }

// refusals answers requests that are refused before the Handler, with a reference to the
// issuer of tokens.
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

// instructionPaths is the prefix of the routes of instruction delivery. Their errors are
// problem documents (RFC 9457), whichever package makes them.
const instructionPaths = "/auth/"

// refusal answers a refused request. Its body depends only on the route and the status.
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

// Resource describes this daemon as a protected resource of an authorization server (RFC
// 9728), so that clients can get a token. All URLs are configured; nothing is taken from a
// request's Host.
type Resource struct {
	URL    string   // this daemon's own URL, without a slash at its end
	Issuer string   // the issuer of tokens
	Scopes []string // scopes that a client can ask for
	Basic  []string // scopes that a client should ask for first
	// Missing returns the scopes that a principal without access to any server lacks; empty:
	// no scope would help.
	Missing func(*principal.Principal) string
}

var (
	// ErrMalformed is an error of Authenticate: the token was presented in a form that RFC
	// 6750 does not have (400).
	ErrMalformed = errors.New("authentication is malformed")
	// ErrUnavailable is an error of Authenticate: the token cannot be verified now (503).
	ErrUnavailable = errors.New("authentication is not possible now")
	// ErrScope is passed to Refused: the token is valid and grants nothing on this route.
	ErrScope = errors.New("an access token without a scope that grants anything")
	// ErrOrigin is passed to Refused: Host or Origin is not accepted.
	ErrOrigin = errors.New("the Host or Origin is not on the list")
)

const wellKnown = "/.well-known/oauth-protected-resource"

// isMetadata reports whether path is a metadata path of RFC 9728, 3.1. It is public, because
// a client reads it before it has a token.
func (f refusals) isMetadata(path string) bool {
	rest, ok := strings.CutPrefix(path, wellKnown)
	return f.d.o.Resource != nil && ok && (rest == "" || rest[0] == '/')
}

// metadata answers for the daemon, the aggregate and every possible name of a server. Whether
// such a server exists is revealed only to a caller with a token.
func (f refusals) metadata(w http.ResponseWriter, r *http.Request, path string) {
	rest := path[len(wellKnown):]
	if rest != resourcePath(rest) {
		plain(w, http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		plain(w, http.StatusMethodNotAllowed)
		return
	}
	res := f.d.o.Resource
	body, err := json.Marshal(struct {
		Resource string   `json:"resource"`
		Issuers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Name     string   `json:"resource_name"`
	}{res.URL + rest, []string{res.Issuer}, res.Scopes, []string{"header"}, "Doorward"})
	if err != nil { // a scope that is not valid text; the configuration allows none
		plain(w, http.StatusNotFound)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

// resourcePath returns the path of the resource of a path: that of the aggregate, that of a
// server, or "" for the daemon as a whole.
func resourcePath(path string) string {
	face, server := splitPath(path)
	if face != "mcp" || len(server) > 64 || path != "/mcp" && server == "" {
		return ""
	}
	return path
}

// challenge returns a WWW-Authenticate header. If there is an issuer, it names the location
// of the metadata and the scopes to ask for.
func (f refusals) challenge(path, code, scope string) string {
	c := `Bearer realm="doorward"`
	if code != "" {
		c += `, error="` + code + `"`
	}
	if res := f.d.o.Resource; res != nil {
		c += `, resource_metadata="` + res.URL + wellKnown + resourcePath(path) + `"`
		if scope != "" {
			c += `, scope="` + scope + `"`
		}
	}
	return c
}

// basic returns the scopes of a first challenge.
func (f refusals) basic() string {
	if f.d.o.Resource == nil {
		return ""
	}
	return strings.Join(f.d.o.Resource.Basic, " ")
}

// presented reports whether the request has a bearer token. Only then the challenge names an
// error (RFC 6750, 3.1).
func presented(r *http.Request) bool {
	v := r.Header["Authorization"]
	const scheme = "bearer "
	return len(v) == 1 && len(v[0]) > len(scheme) && strings.EqualFold(v[0][:len(scheme)], scheme)
}

// lacksScope answers a caller whose token is valid and grants nothing. The aggregate always
// exists, so the answer reveals nothing that a 404 would hide.
func (f refusals) lacksScope(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) bool {
	if server != "" || f.d.o.Resource == nil || f.d.o.Resource.Missing == nil {
		return false
	}
	scope := f.d.o.Resource.Missing(who)
	if scope == "" {
		return false
	}
	w.Header().Set("WWW-Authenticate", f.challenge("/mcp", "insufficient_scope", scope))
	f.refuse(w, r, http.StatusForbidden, ErrScope)
	return true
}
