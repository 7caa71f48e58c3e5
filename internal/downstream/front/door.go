package front

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Options configures a Door. The functions are called for every request and must be safe for
// concurrent use.
type Options struct {
	Handler Handler
	// Screen checks Host and Origin, before anything else of the request. False is a 403.
	Screen func(*http.Request) bool
	// Authenticate returns the caller. ErrLimited is a 429, ErrMalformed a 400,
	// ErrUnavailable a 503, any other error a 401; the error itself never reaches the caller.
	Authenticate func(*http.Request) (*principal.Principal, error)
	// Ahead serves routes that need no caller, and reports whether it has answered. nil:
	// there is only /health.
	Ahead func(w http.ResponseWriter, r *http.Request, path string) bool
	// Delivery checks the delivery session of a request to an MCP route, in addition to the
	// caller's own credential, and returns its id; empty: the request has none. An error is a
	// 401. nil: there are no delivery sessions.
	Delivery func(*http.Request, *principal.Principal) (id string, err error)
	// Holds reports whether the proof of a principal is still valid; it is called every few
	// seconds for sessions and running calls. nil: always.
	Holds func(*principal.Principal) bool
	// Refused is called for each request that is refused before the handler, with the reason:
	// ErrOrigin, ErrScope, or the error of Authenticate or Delivery.
	Refused func(r *http.Request, status int, reason error)
	// Seen is called for every sign of life of a client: an authenticated request,
	// and a keep-alive that was read. session is the digest of its session, or
	// empty. It must not block. nil: signs of life are not reported.
	Seen func(who *principal.Principal, session string)
	// Unread returns a function that measures how much of the data written to the connection
	// of a request has not been read. nil, or a nil function: it cannot be measured, and an
	// open stream is then no sign of life.
	Unread func(ctx context.Context) func() (int, error)
	// HungUp returns a function that reports whether the client has closed the connection of a
	// request. nil, or a nil function: only the context of the request tells.
	HungUp func(ctx context.Context) func() bool
	// Await calls f on a goroutine of its own when the connection of an event stream can be
	// read, or was closed here. nil or false: the connection has to be read until then.
	Await func(c net.Conn, f func()) bool
	// Back returns a function that gives the connection of a request, which was taken over from
	// net/http, back to its listener for the next request; ahead is what the client has sent of
	// it. nil, or a nil function: a connection of which a request waits is not taken over.
	Back func(ctx context.Context) func(ahead []byte)
	// Resource describes where clients get tokens. nil: nowhere.
	Resource *Resource
	// Paths serve routes other than MCP, for authenticated callers, by exact path
	// or, where the key ends in a slash, by prefix.
	Paths map[string]func(http.ResponseWriter, *http.Request, *principal.Principal)

	BodyBytes            int64
	Sessions             int
	SessionsPerPrincipal int
	CallsPerPrincipal    int // limit of concurrent calls in a session; 0: 256
	IdleSession          time.Duration
	// Bounds returns the limits of a principal: open sessions, and concurrent calls in one of
	// them. nil: SessionsPerPrincipal and CallsPerPrincipal for every principal.
	Bounds func(*principal.Principal) (sessions, calls int)
	// Full returns the answer to a request that exceeds the limit rule, and records the
	// refusal. nil: the refusal is not recorded.
	Full func(x *Exchange, rule string) Reply
	// Timed makes the front note the time of each request for Exchange.Arrived.
	Timed bool
	// Keeper stores sessions for the next run of the daemon. nil: they end with the daemon.
	Keeper Keeper
	// StreamTime is how long the event stream of one call is held open. Then a client of
	// 2025-11-25 has to reconnect for the rest (SEP-1699). 0: as long as the call takes.
	StreamTime time.Duration
}

// hungUp returns HungUp for the connection of a request; nil: it is unknown.
func (o *Options) hungUp(r *http.Request) func() bool {
	if o.HungUp == nil {
		return nil
	}
	return o.HungUp(r.Context())
}

// each returns the number of sessions that a principal may have.
func (o *Options) each(who *principal.Principal) int {
	if o.Bounds == nil {
		return o.SessionsPerPrincipal
	}
	n, _ := o.Bounds(who)
	return n
}

// callsOf returns the number of concurrent calls that a principal may have in a session.
func (o *Options) callsOf(who *principal.Principal) int {
	if o.Bounds == nil {
		return o.CallsPerPrincipal
	}
	_, n := o.Bounds(who)
	return n
}

// Door is the HTTP handler of all listeners.
type Door struct {
	o        Options
	sessions *sessions
	earlier  earlier
	leases   sync.Map // *lease -> nil
	large    largeBodies
	late     atomic.Int32 // requests without a handler
	stop     chan struct{}
	closing  sync.Once
}

// Sessions returns the number of open sessions.
func (d *Door) Sessions() int { return d.sessions.count() }

// Each calls f for every open session until it returns false.
func (d *Door) Each(f func(*Session) bool) {
	d.sessions.mu.RLock()
	all := slices.Collect(maps.Values(d.sessions.byID))
	d.sessions.mu.RUnlock()
	for _, s := range all {
		if !f(s) {
			return
		}
	}
}

// Close ends every session and stream. It may be called more than once.
func (d *Door) Close() {
	d.closing.Do(func() {
		close(d.stop)
		d.sessions.close()
	})
}

// stopping reports whether Close was called.
func (d *Door) stopping() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

func (d *Door) newSession(id string, who *principal.Principal, server string, over transport) *Session {
	s := newSession(id, who, server, over, d.sessions.now())
	s.place = placeOf(d.o.Keeper, s)
	if s.most = d.o.callsOf(who); s.most <= 0 {
		s.most = sessionCalls
	}
	return s
}
