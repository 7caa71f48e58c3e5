package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/trust/principal"
)

// ServerRestart is the body of POST /admin/v1/servers/restart.
type ServerRestart struct {
	Server string `json:"server"`
}

// ServerRestarted is its answer: the number of connections that ended.
type ServerRestarted struct {
	Ended int `json:"ended"`
}

// AgentStop is the body of POST /admin/v1/agent/stop. Spawn is the id of the start of the
// agent.
type AgentStop struct {
	Spawn string `json:"spawn"`
}

// Control holds the functions of the daemon for the paths that end processes. Errors:
// ErrNotFound, and agent.ErrAgentShell for a caller below an agent.
type Control struct {
	Restart func(r *http.Request, server string) (ended int, err error)
	Stop    func(r *http.Request, spawn string) error
}

func (o Options) controlPaths() map[string]handler {
	if o.Control.Restart == nil {
		return nil
	}
	return map[string]handler{
		"/admin/v1/servers/restart": o.control("servers/restart", func(r *http.Request, in []byte) (any, error) {
			var ask ServerRestart
			if err := json.Unmarshal(in, &ask); err != nil || ask.Server == "" {
				return nil, errArgument
			}
			n, err := o.Control.Restart(r, ask.Server)
			return ServerRestarted{Ended: n}, err
		}),
		"/admin/v1/agent/stop": o.control("agent/stop", func(r *http.Request, in []byte) (any, error) {
			var ask AgentStop
			if err := json.Unmarshal(in, &ask); err != nil || ask.Spawn == "" {
				return nil, errArgument
			}
			return ask, o.Control.Stop(r, ask.Spawn)
		}),
	}
}

// control returns the handler of a POST that ends processes.
func (o Options) control(what string, f func(*http.Request, []byte) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
		o.posted(what, func(_ context.Context, _ *principal.Principal, body []byte) (any, int) {
			out, err := f(r, body)
			switch {
			case err == nil:
				return out, http.StatusOK
			case errors.Is(err, errArgument):
				return nil, http.StatusBadRequest
			case errors.Is(err, agent.ErrAgentShell):
				return o.UI.failure(r, err)
			}
			return nil, statusOf(err)
		})(w, r, who)
	}
}
