package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/principal"
)

type callerKey struct{}

// callers decides who sends a request, and records what is refused before a
// principal is known.
type callers struct {
	auth     *authn.Authenticator // nil: an operator's command without a listener
	events   *doorEvents
	observer *peer.Observer // looks at the programs of the socket's callers
	sessions *deliver.Server
	clients  clients
}

// connContext stamps a connection with what is known of it, once: the
// requests on it only look it up.
func (s *callers) connContext(l *listen.Listener) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		ctx = l.ConnContext(ctx, c)
		o := listen.From(ctx)
		if o == nil {
			return ctx
		}
		return noting(context.WithValue(ctx, callerKey{}, s.newCaller(o)))
	}
}

// callerOf is what is known of the connection of a request; nil: nothing.
func callerOf(r *http.Request) *authn.Caller {
	c, _ := r.Context().Value(callerKey{}).(*authn.Caller)
	return c
}

// newCaller translates what listen knows into what authn wants to know.
func (s *callers) newCaller(o *listen.Origin) *authn.Caller {
	c := &authn.Caller{Unix: o.Peer, Loopback: o.Listener.Loopback, Enforce: o.Listener.AuthEnforced, Listener: o.Listener.Spec.Addr,
		OwnerUID: o.OwnerUID, OwnerKnown: o.Owner == listen.OwnerSame || o.Owner == listen.OwnerOther, Remote: o.Remote.Addr(), Spawn: o.Spawn}
	if o.Peer != nil && o.Spawn == "" {
		c.Observe = func() peer.Evidence { return s.observer.Observe(context.Background(), o.Peer) }
	}
	return c
}

// ownChild turns away the servers that the daemon started, and what they leave
// behind: they would be taken for the user. An agent that it started for
// somebody has a name of its own, and is let in by spawned.
func ownChild(c *attest.Credentials) bool { return peer.DescendantOf(c.PID, int32(os.Getpid())) }

// screen is the Host and Origin check of every request.
func screen(r *http.Request) bool {
	o := listen.From(r.Context())
	if o == nil || !o.HostAllowed(r.Host) {
		return false
	}
	origins := r.Header["Origin"]
	switch len(origins) {
	case 0:
		return sameSite(r.Header["Sec-Fetch-Site"])
	case 1:
		return origins[0] != "" && o.OriginAllowed(origins[0])
	}
	return false
}

// sameSite refuses what a browser says comes from another site and hides its
// Origin.
func sameSite(v []string) bool {
	return !slices.ContainsFunc(v, func(s string) bool { return s != "same-origin" && s != "none" })
}

// authenticate says who is calling, and notes which process speaks MCP.
func (s *callers) authenticate(r *http.Request) (*principal.Principal, error) {
	who, err := s.identify(r)
	if err == nil {
		s.clients.note(r)
	}
	return who, err
}

func (s *callers) identify(r *http.Request) (*principal.Principal, error) {
	c := callerOf(r)
	if c == nil {
		return nil, authn.ErrUnauthenticated
	}
	if c.Unix == nil && tokenInQuery(r) {
		return nil, front.ErrMalformed
	}
	if showsSession(r) {
		return s.bySession(c, r)
	}
	who, err := s.auth.AuthenticateFor(c, listen.From(r.Context()).Client(r.Header), r.Header["Authorization"])
	if err != nil && c.Unix != nil {
		listen.From(r.Context()).Expel() // it cannot become somebody again
	}
	var many *authn.TooManyError
	switch {
	case errors.As(err, &many):
		return nil, front.Limited{RetryAfter: many.RetryAfter()}
	case errors.Is(err, authn.ErrUnverifiable):
		return nil, front.ErrUnavailable
	case errors.Is(err, authn.ErrMalformed):
		return nil, front.ErrMalformed
	}
	return who, err
}

// bySession returns the principal of a session token shown over TCP. While the
// token cannot be verified the caller has no identity, and its source is charged
// as for an invalid token.
func (s *callers) bySession(c *authn.Caller, r *http.Request) (*principal.Principal, error) {
	who, err := s.sessions.Authenticate(r)
	var many *authn.TooManyError
	if errors.Is(err, deliver.ErrStore) && errors.As(s.auth.Unjudged(c, listen.From(r.Context()).Client(r.Header)), &many) {
		return nil, front.Limited{RetryAfter: many.RetryAfter()}
	}
	return who, err
}

// refusedAtDoor records a refusal before any principal was known. Its texts
// are constants, and its facts addresses and what the kernel says: nothing else
// that a caller sent is in them.
func (s *callers) refusedAtDoor(r *http.Request, _ int, reason error) {
	var rejected authn.Rejection
	source, text := "auth", "not authenticated"
	switch {
	case errors.Is(reason, front.ErrOrigin):
		source, text = "listen", "Host or Origin not allowed"
	case errors.Is(reason, front.ErrScope), errors.Is(reason, front.ErrMalformed):
		text = reason.Error()
	case errors.Is(reason, front.ErrUnavailable):
		text = "an access token that cannot be verified: " + authn.ErrUnverifiable.Error()
	case errors.Is(reason, front.ErrLimited):
		text = "not checked: the source failed too often"
	case errors.As(reason, &rejected):
		text = rejected.Error()
	}
	s.events.request(r, source, "http", text)
}

// above are the process behind a request on the Unix socket and all above it.
func above(r *http.Request) (processes []string, complete bool) {
	o := listen.From(r.Context())
	if o == nil || o.Peer == nil {
		return nil, false
	}
	all, err := peer.Ancestors(o.Peer)
	return all, err == nil
}

// held is above for a connection over TCP on this machine.
func held(r *http.Request) (processes []string, told bool) {
	o := listen.From(r.Context())
	if o == nil || o.Peer != nil {
		return nil, false
	}
	h, err := o.Holder()
	if err != nil {
		return nil, !errors.Is(err, peer.ErrUnavailable)
	}
	all, err := peer.AncestorsOf(h)
	if err != nil {
		return []string{h.Process}, true // what is above it cannot be told
	}
	return all, true
}

// showsSession reports whether a request over TCP bears a session token where
// one authenticates: on the routes of instruction delivery alone.
func showsSession(r *http.Request) bool {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/auth/") || overUnix(r) || len(r.Header["Authorization"]) != 1 {
		return false
	}
	scheme, token, ok := strings.Cut(r.Header["Authorization"][0], " ")
	return ok && strings.EqualFold(scheme, "bearer") && strings.HasPrefix(strings.TrimLeft(token, " "), session.Prefix)
}

func overUnix(r *http.Request) bool {
	o := listen.From(r.Context())
	return o != nil && o.Peer != nil
}
