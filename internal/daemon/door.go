package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

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

// callers authenticates the senders of requests, and records requests that are refused before
// a principal is known.
type callers struct {
	auth     *authn.Authenticator // nil: an operator's command without a listener
	events   *doorEvents
	observer *peer.Observer // examines the programs of the callers on the Unix socket
	sessions *deliver.Server
	clients  clients
}

// connContext puts the facts about a connection into its context, once for all its requests
// between two rests. They are determined once for the connection.
func (s *callers) connContext(l *listen.Listener) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		ctx = l.ConnContext(ctx, c)
		o := listen.From(ctx)
		if o == nil {
			return ctx
		}
		known, ok := o.Facts.(*connFacts)
		if !ok {
			known = &connFacts{caller: s.newCaller(o)}
			o.Facts = known
		}
		return context.WithValue(ctx, callerKey{}, known)
	}
}

// connFacts holds what is known about a connection.
type connFacts struct {
	caller *authn.Caller
	noted  sync.Once // its process was noted
}

func factsOf(r *http.Request) *connFacts {
	known, _ := r.Context().Value(callerKey{}).(*connFacts)
	return known
}

// callerOf returns the facts about the connection of a request; nil: unknown.
func callerOf(r *http.Request) *authn.Caller {
	known := factsOf(r)
	switch {
	case known == nil:
		return nil
	case known.caller.Loopback && known.caller.Enforce && !overLocal(r):
		return elsewhere(known.caller)
	}
	return known.caller
}

// elsewhere returns the caller for a request that a trusted proxy on this machine forwards for a
// client elsewhere: its token makes no local principal. Without a token the proxy is the caller.
func elsewhere(c *authn.Caller) *authn.Caller {
	return &authn.Caller{Enforce: true, Listener: c.Listener, OwnerUID: c.OwnerUID, OwnerKnown: c.OwnerKnown, Remote: c.Remote}
}

// newCaller converts the facts of package listen into those of authn.
func (s *callers) newCaller(o *listen.Origin) *authn.Caller {
	c := &authn.Caller{Unix: o.Peer, Loopback: o.Listener.Loopback, Enforce: o.Listener.AuthEnforced, Listener: o.Listener.Spec.Addr,
		OwnerUID: o.OwnerUID, OwnerKnown: o.Owner == listen.OwnerSame || o.Owner == listen.OwnerOther, Remote: o.Remote.Addr(), Spawn: o.Spawn}
	if o.Peer != nil && o.Spawn == "" {
		c.Observe = func() peer.Evidence { return s.observer.Observe(context.Background(), o.Peer) }
	}
	return c
}

// ownChild reports whether a peer is below this daemon: a server that it started, or a
// process that one left behind, which would be taken for the user. A started agent has a name
// of its own and is admitted before (listen.Options.Spawned).
func ownChild(c *attest.Credentials) bool { return peer.DescendantOf(c.PID, int32(os.Getpid())) }

// screen checks Host and Origin of a request.
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

// sameSite refuses a request for which the browser reports another site and sends no Origin.
func sameSite(v []string) bool {
	return !slices.ContainsFunc(v, func(s string) bool { return s != "same-origin" && s != "none" })
}

// authenticate returns the caller, and notes the process that speaks MCP.
func (s *callers) authenticate(r *http.Request) (*principal.Principal, error) {
	who, err := s.identify(r)
	if err == nil && !listen.Serve(r.Context()) {
		return nil, front.ErrUnavailable
	}
	if known := factsOf(r); err == nil && known != nil && isMCP(r.RequestURI) {
		known.noted.Do(func() { s.clients.note(r) })
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
	if err == nil {
		return who, nil
	}
	if c.Unix != nil {
		listen.From(r.Context()).Expel() // it cannot get another principal
	}
	return nil, refusedAs(err)
}

// refusedAs translates an error of authentication into one of package front.
func refusedAs(err error) error {
	var many *authn.TooManyError
	switch {
	case errors.As(err, &many):
		return front.Limited{RetryAfter: many.RetryAfter()}
	case errors.Is(err, authn.ErrUnverifiable):
		return front.ErrUnavailable
	case errors.Is(err, authn.ErrMalformed):
		return front.ErrMalformed
	}
	return err
}

// bySession returns the principal of a session token shown over TCP. While the token cannot
// be verified the caller has no identity, and its source is charged as for an invalid token.
func (s *callers) bySession(c *authn.Caller, r *http.Request) (*principal.Principal, error) {
	who, err := s.sessions.Authenticate(r)
	var many *authn.TooManyError
	if errors.Is(err, deliver.ErrStore) && errors.As(s.auth.Unjudged(c, listen.From(r.Context()).Client(r.Header)), &many) {
		return nil, front.Limited{RetryAfter: many.RetryAfter()}
	}
	return who, err
}

// refusedAtDoor records a request that was refused before its principal was known. The record
// consists of constant texts, addresses and facts from the kernel; nothing else that the
// caller sent is in it.
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

// above returns the process of a request on the Unix socket and all processes above it.
func above(r *http.Request) (processes []string, complete bool) {
	o := listen.From(r.Context())
	if o == nil || o.Peer == nil {
		return nil, false
	}
	all, err := peer.Ancestors(o.Peer)
	return all, err == nil
}

// held is above for a TCP connection on this machine. determined is false if the holder cannot be
// determined on this system.
func held(r *http.Request) (processes []string, determined bool) {
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
		return []string{h.Process}, true // the processes above it are unknown
	}
	return all, true
}

// showsSession reports whether a request over TCP has a session token that authenticates it,
// which is so only on the routes of instruction delivery.
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
