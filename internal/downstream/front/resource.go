package front

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Resource is this door as a protected resource of an authorization server:
// what its clients read to get a token (RFC 9728). Every URL in it is a
// configured one; nothing is taken from a request's Host.
type Resource struct {
	URL    string   // this daemon's own, without a slash at its end
	Issuer string   // where its tokens come from
	Scopes []string // what can be asked for there
	Basic  []string // what a client is asked to begin with
	// Missing returns the scopes that a principal without access to any server
	// lacks; empty where no scope would help.
	Missing func(*principal.Principal) string
}

var (
	// ErrMalformed is an Authenticate error: a token presented in a way that
	// RFC 6750 does not have. 400.
	ErrMalformed = errors.New("authentication is malformed")
	// ErrUnavailable is an Authenticate error: the token cannot be verified now.
	// 503.
	ErrUnavailable = errors.New("authentication is not possible now")
	// ErrScope is passed to Refused: a valid token that grants nothing here.
	ErrScope = errors.New("an access token without a scope that grants anything")
	// ErrOrigin is passed to Refused: Host or Origin is not on the list.
	ErrOrigin = errors.New("the Host or Origin is not on the list")
)

const wellKnown = "/.well-known/oauth-protected-resource"

// isMetadata reports a path of RFC 9728, 3.1. It is public, because a client
// reads it before it has a token.
func (f refusals) isMetadata(path string) bool {
	rest, ok := strings.CutPrefix(path, wellKnown)
	return f.d.o.Resource != nil && ok && (rest == "" || rest[0] == '/')
}

// metadata answers for the daemon, the aggregate and every name that a server
// could have: whether there is such a server, a token may tell.
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
	if err != nil { // a scope that is no text; the configuration has none
		plain(w, http.StatusNotFound)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

// resourcePath is the path of the resource that a path belongs to: the
// aggregate's, a server's, or nothing for the daemon as a whole.
func resourcePath(path string) string {
	face, server := splitPath(path)
	if face != "mcp" || len(server) > 64 || path != "/mcp" && server == "" {
		return ""
	}
	return path
}

// challenge is a WWW-Authenticate header. Where there is an issuer, it says
// where to read about it and which scopes to ask for.
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

// basic are the scopes of a first challenge.
func (f refusals) basic() string {
	if f.d.o.Resource == nil {
		return ""
	}
	return strings.Join(f.d.o.Resource.Basic, " ")
}

// presented reports that there was a bearer token. Only then a challenge names
// an error (RFC 6750, 3.1).
func presented(r *http.Request) bool {
	v := r.Header["Authorization"]
	const scheme = "bearer "
	return len(v) == 1 && len(v[0]) > len(scheme) && strings.EqualFold(v[0][:len(scheme)], scheme)
}

// lacksScope answers a caller whose token is valid and grants nothing. The
// aggregate always exists, so the answer reveals nothing that a 404 would hide.
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

// ask hands a request to the Handler. Where a wider token is all that was
// missing, the answer is 403 and says which (Authorization, "Scope Challenge
// Handling").
func (d *Door) ask(ctx context.Context, x *Exchange) Reply {
	reply := d.o.Handler.Request(ctx, x)
	if reply.NeedScope == "" || d.o.Resource == nil {
		return reply
	}
	reply.Status = http.StatusForbidden
	reply.challenge = refusals{d}.challenge(pathOf(x.Server), "insufficient_scope", reply.NeedScope)
	return reply
}
