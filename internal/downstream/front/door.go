package front

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Options are what the door needs from the rest of the house. The functions
// are called for every request and must be safe for concurrent use.
type Options struct {
	Handler Handler
	// Screen checks Host and Origin, before anything else is looked at. false
	// is a 403.
	Screen func(*http.Request) bool
	// Authenticate says who is calling. ErrLimited is a 429, ErrMalformed a 400,
	// ErrUnavailable a 503, any other error a 401; the error itself never
	// reaches the caller.
	Authenticate func(*http.Request) (*principal.Principal, error)
	// Ahead serves what needs no caller: it reports whether it has answered. nil:
	// there is nothing but /health.
	Ahead func(w http.ResponseWriter, r *http.Request, path string) bool
	// Delivery checks the delivery session of a request to an MCP route, beside the
	// caller's own credential, and returns its id, empty where none came. An error
	// is a 401. nil: there are none.
	Delivery func(*http.Request, *principal.Principal) (id string, err error)
	// Holds reports whether the proof of a principal still holds; it is called
	// every few seconds for sessions and calls in progress. nil: always.
	Holds func(*principal.Principal) bool
	// Refused is called for each request that is refused before the handler, with
	// the reason: ErrOrigin, ErrScope, or the error of Authenticate.
	Refused func(r *http.Request, status int, reason error)
	// Seen is called for every sign of life of a client: an authenticated request,
	// and a keep-alive that was read. session is the digest of its session, or
	// empty. It must not block. nil: signs of life are not reported.
	Seen func(who *principal.Principal, session string)
	// Unread measures, for the connection of a request, how much of what was
	// written to it has not been read. nil, and nil functions: it cannot be
	// told, and then an open stream is no sign of life.
	Unread func(ctx context.Context) func() (int, error)
	// Resource tells clients where to get tokens. nil: nowhere.
	Resource *Resource
	// Paths serve routes other than MCP, for authenticated callers, by exact path
	// or, where the key ends in a slash, by prefix.
	Paths map[string]func(http.ResponseWriter, *http.Request, *principal.Principal)

	BodyBytes            int64
	Sessions             int
	SessionsPerPrincipal int
	CallsPerPrincipal    int // a session may not have more under way; 0: 256
	IdleSession          time.Duration
	// Bounds are the sessions and the calls under way in one of them that a principal
	// may have. nil: SessionsPerPrincipal and CallsPerPrincipal, whoever it is.
	Bounds func(*principal.Principal) (sessions, calls int)
	// Full answers what finds no room at the door; rule names the limit. It
	// records the refusal. nil: there is no record.
	Full func(x *Exchange, rule string) Reply
	// Timed notes when each request comes in, for Exchange.Arrived.
	Timed bool
	// Keeper keeps sessions for the next run of the daemon. nil: they end with it.
	Keeper Keeper
	// StreamTime is how long the event stream of one call is held open; after
	// it a client of 2025-11-25 is asked to come back for the rest (SEP-1699).
	// 0: as long as the call takes.
	StreamTime time.Duration
}

// each is how many sessions a principal may have.
func (o *Options) each(who *principal.Principal) int {
	if o.Bounds == nil {
		return o.SessionsPerPrincipal
	}
	n, _ := o.Bounds(who)
	return n
}

// callsOf is how many calls a principal may have under way in a session.
func (o *Options) callsOf(who *principal.Principal) int {
	if o.Bounds == nil {
		return o.CallsPerPrincipal
	}
	_, n := o.Bounds(who)
	return n
}

// Door is the HTTP handler of every listener. Nothing is served beside it.
type Door struct {
	o        Options
	sessions *sessions
	earlier  earlier
	leases   sync.Map // *lease -> nil: what is under way for those who can lose it
	stop     chan struct{}
	closing  sync.Once
}

// Sessions is the number of open sessions.
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

func (d *Door) newSession(id string, who *principal.Principal, server string, over transport) *Session {
	s := newSession(id, who, server, over, d.sessions.now())
	s.place = placeOf(d.o.Keeper, s)
	if s.most = d.o.callsOf(who); s.most <= 0 {
		s.most = sessionCalls
	}
	return s
}
