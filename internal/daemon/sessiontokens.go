package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// ahead serves the routes of instruction delivery that need no caller. While the database is
// unavailable a session token cannot be verified: on routes where it would authenticate, the
// answer is 503 instead of 401; elsewhere the token is ignored.
func (s *callers) ahead(w http.ResponseWriter, r *http.Request, path string) bool {
	if deliver.Ahead(w, r, path) {
		return true
	}
	if !s.sessions.Away() || !showsSession(r) || !deliver.Serves(path) {
		return false
	}
	var many *authn.TooManyError
	if errors.As(s.unjudged(r), &many) {
		deliver.TooMany(w, many.RetryAfter())
		return true
	}
	deliver.Unavailable(w)
	return true
}

// unjudged records that a session token could not be verified, and charges its source.
func (s *callers) unjudged(r *http.Request) error {
	reason := "a session token that cannot be checked: the database is not available"
	err := error(authn.ErrUnauthenticated)
	if c := callerOf(r); c != nil {
		err = s.auth.Unjudged(c, listen.From(r.Context()).Client(r.Header))
	}
	if errors.Is(err, authn.ErrTooMany) {
		reason = "not checked: the source failed too often"
	}
	s.doorEvent(r, "session", reason)
	return err
}

// bearerNamed and standing query the authenticator; a command without a daemon has none.
func (s *callers) bearerNamed(name string) *principal.Principal {
	if s.auth == nil {
		return nil
	}
	return s.auth.Named(name)
}

func (s *callers) standing(who *principal.Principal) bool { return s.auth == nil || s.auth.Holds(who) }

// overLocal is Origin.IsLocal of a request.
func overLocal(r *http.Request) bool { return listen.From(r.Context()).IsLocal(r.Header) }

// instanceOf returns the instance of the process of a request on the Unix socket.
func instanceOf(r *http.Request) string {
	if o := listen.From(r.Context()); o != nil && o.Peer != nil {
		return o.Peer.Instance
	}
	return ""
}

// bearer returns the principal of a bearer token that a request shows in addition to the
// credential that authenticates its caller.
func (s *callers) bearer(r *http.Request, token string) (*principal.Principal, error) {
	c := callerOf(r)
	if c == nil {
		return nil, authn.ErrUnauthenticated
	}
	shown := &authn.Caller{Loopback: c.Loopback || c.Unix != nil, Enforce: true, Listener: "session of " + c.Listener,
		OwnerUID: c.OwnerUID, OwnerKnown: c.OwnerKnown, Remote: c.Remote}
	return s.auth.AuthenticateFor(shown, listen.From(r.Context()).Client(r.Header), []string{"Bearer " + token})
}

// owner reports whether the kernel attests that who is the daemon's own user.
func (d *Daemon) owner(who *principal.Principal) bool {
	f, ok := who.Fact("uid")
	return ok && f.Grade >= principal.Attested && who.Name() == principal.UID(d.uid)
}

// shellLimit is how long an operator's act waits for the database of agents.
const shellLimit = 3 * time.Second

// shell refuses an operator's act from a process below a registered agent. If the database of
// agents is unavailable, the error is ErrStore, because that is no fault of the caller. Every
// other failure is a refusal, including one that the caller causes by disconnecting.
func (d *Daemon) shell(ctx context.Context, processes []string, complete bool) error {
	if d.offline {
		return nil // no agent is registered with a daemon that does not run
	}
	if m := d.messaging.Load(); m != nil {
		ctx, cancel := context.WithTimeout(ctx, shellLimit)
		defer cancel()
		err := m.server.Operator().AgentShell(ctx, processes, complete)
		if storeFailed(ctx, err) {
			return fmt.Errorf("looking up the registered agents: %w", errors.Join(deliver.ErrStore, err))
		}
		return err
	}
	if !complete || len(processes) == 0 {
		return agent.ErrAgentShell
	}
	if d.o.Config.Agent.Enabled {
		return fmt.Errorf("looking up the registered agents: %w", deliver.ErrStore) // agents of an earlier run may be registered
	}
	return nil
}

// storeFailed reports whether an error is a failure of the database itself.
func storeFailed(ctx context.Context, err error) bool {
	var of *mail.Error
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &of) && of.Code == mail.StoreUnavailable
}

// refusedSession records that an invalid session token was shown.
func (s *callers) refusedSession(r *http.Request, reason string) {
	s.doorEvent(r, "session", "an invalid session token: "+reason)
}

// doorEvent records a refused token. reason is a constant text.
func (s *callers) doorEvent(r *http.Request, action, reason string) {
	s.events.request(r, "auth", action, reason)
}
