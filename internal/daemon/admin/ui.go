package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// UIOpened is the answer of POST /admin/v1/ui: the address that signs a browser in once, and
// the time until which it is valid (RFC 3339).
type UIOpened struct {
	URL     string `json:"url"`
	Expires string `json:"expires"`
}

// UISignedOut is the answer of POST /admin/v1/ui/sign-out.
type UISignedOut struct {
	Ended int `json:"ended"` // number of sessions
}

// ErrNoConsole refuses a sign-in where no listener serves the console.
var ErrNoConsole = errors.New("no loopback listener serves the console")

// codeNoConsole is the code of ErrNoConsole.
const codeNoConsole = "NO_CONSOLE"

// UI holds the functions of the daemon that the paths of the console need. Both refuse the
// shell of an agent with agent.ErrAgentShell, and every caller other than the daemon's own user
// on the Unix socket.
type UI struct {
	Open    func(r *http.Request, who *principal.Principal) (UIOpened, error)
	SignOut func(r *http.Request, who *principal.Principal) (UISignedOut, error)
	Above   func(*http.Request) (processes []string, complete bool) // as in Messaging
}

func (o Options) uiPaths() map[string]handler {
	if o.UI.Open == nil {
		return nil
	}
	return map[string]handler{
		"/admin/v1/ui": o.uiPath("ui.open", func(r *http.Request, who *principal.Principal) (any, error) {
			return o.UI.Open(r, who)
		}),
		"/admin/v1/ui/sign-out": o.uiPath("ui.sign-out", func(r *http.Request, who *principal.Principal) (any, error) {
			return o.UI.SignOut(r, who)
		}),
	}
}

// uiPath returns the handler of a POST whose body is ignored.
func (o Options) uiPath(what string, f func(*http.Request, *principal.Principal) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		o.posted(what, func(context.Context, *principal.Principal, []byte) (any, int) {
			out, err := f(r, who)
			if err != nil {
				return o.UI.failure(r, err)
			}
			return out, http.StatusOK
		})(w, r, who)
	}
}

func (u UI) failure(r *http.Request, err error) (any, int) {
	var refusal *gate.Refusal
	f := Failure{Error: http.StatusText(http.StatusForbidden), Code: codeNotAllowed}
	switch {
	case errors.Is(err, ErrNoConsole):
		return Failure{Error: http.StatusText(http.StatusConflict), Code: codeNoConsole}, http.StatusConflict
	case errors.Is(err, agent.ErrAgentShell):
		f.Code, f.Why = codeAgentShell, whyShell(r, err, u.Above)
	case errors.As(err, &refusal):
		f.Ref = refusal.Ref
	default:
		return Failure{Error: http.StatusText(http.StatusServiceUnavailable)}, http.StatusServiceUnavailable
	}
	return f, http.StatusForbidden
}
