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

// ServerRestarted is its answer: how many connections ended.
type ServerRestarted struct {
	Ended int `json:"ended"`
}

// AgentStop is the body of POST /admin/v1/agent/stop: an agent that Doorward
// started, by the id of its start.
type AgentStop struct {
	Spawn string `json:"spawn"`
}

// Control is what the paths that end processes need from the daemon. Errors:
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

// control serves a POST that ends something.
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
