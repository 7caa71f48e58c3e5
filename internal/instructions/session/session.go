// Package session keeps the sessions of instruction delivery: the right to read protected
// guidance for a limited time, and the token that proves it.
//
// A session makes the reader of a protected text known, so that it can be named in a
// record and stopped. The package knows neither HTTP nor MCP; its caller has passed the
// gate.
//
// Invariants: a token is valid only in the exact form in which it was issued, under a key
// of this installation, while its row and its session are in force. The row states the
// scope and the subject of a session; the token repeats them and decides nothing. The
// database holds a digest of the token's id and never the token. A binding only refuses.
// The answer to a refused caller is a constant, and no error, record or log line holds
// any part of a token.
//
// Keys and rows are on disk, so tokens outlive a restart. Limit: there is one Keeper for
// a state directory at a time, and it does not see what another one wrote since Open.
package session

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/store"
)

// Prefix is the prefix of every token.
const Prefix = "dws1."

// The tiers of content that a session may read.
const (
	Behavioural = "behavioural"
	Structural  = "structural"
)

// Reasons for which a session ended.
const (
	ReasonEnded   = "ended"   // by its holder
	ReasonRevoked = "revoked" // by an operator, or with its maker
	ReasonExpired = "expired" // by time
	ReasonProcess = "process" // when its bound process ended
)

// Limits, which are not configurable.
const (
	MaxToken  = 1024                // bytes
	MaxLife   = 24 * time.Hour      // of a session, renewals included
	Tolerance = time.Minute         // allowed difference of clocks
	Overlap   = 30 * time.Second    // validity of a replaced token
	Kept      = 30 * 24 * time.Hour // how long an ended session is known
)

var (
	// ErrUnknown: there is no such session, or it has ended.
	ErrUnknown = errors.New("no such session")
	// ErrRequest is wrapped by refusals of a Request, which state the cause.
	ErrRequest = errors.New("the session cannot be made as requested")
	// ErrTooMany: too many sessions are live, of this subject or in all, or a session was
	// renewed too often in a short time.
	ErrTooMany = errors.New("too many sessions")
	// ErrUnsaved is wrapped when a session has ended but neither its row nor a record
	// states it yet. Run saves the end; the caller has to make the record.
	ErrUnsaved = errors.New("the session has ended, but this is not saved yet")
)

// Session is one delivery session. It holds nothing secret.
type Session struct {
	ID      string   // 16 hex digits of the digest of the first token's id; renewals keep it
	Subject string   // principal name
	Scope   []string // of Behavioural and Structural, sorted
	Project string   // claimed; ^[a-z0-9][a-z0-9._-]{0,62}$ or empty
	Client  string   // claimed "name/version", one printable line of at most 128 bytes; decides nothing
	CI      bool     // made by an operator for CI
	Bind    string   // process instance, "BOOT/PID@START"; empty: not bound
	Maker   string   // id of the credential that it was made with; empty: none with an id

	// Times are UTC. Issued is the time of the first token, Expires the end of the newest
	// one; both are whole seconds, as in the token. From RefreshAfter on, a holder that
	// needs a session for longer should act: Renew moves the end, if its answer has a
	// later Expires; otherwise a new session is needed. RefreshAfter equals Expires when
	// renewing cannot help.
	Issued, Expires, RefreshAfter time.Time
	Ended                         time.Time // zero: it is live
	Reason                        string    // the reason of its end
}

// Request holds the properties of a new session. TTL is at most MaxLife, which 0 stands
// for; it is rounded up to whole seconds.
type Request struct {
	Subject, Project, Client, Bind, Maker string
	Scope                                 []string
	TTL                                   time.Duration
	CI                                    bool
}

// Caller is the caller that presents a token. On the Unix socket the kernel attests its
// properties; elsewhere only the token is checked, and the process if it can be found.
type Caller struct {
	Unix      bool
	Principal string
	// Processes are the process instances that are known without cost, the caller's own
	// first and usually alone. Above returns it and its ancestors, as peer.Ancestors
	// does; it is called when a session is bound to a process that is not in Processes.
	// Whether its answer is complete does not matter: a caller whose chain lacks the
	// bound process is refused. Nil: nothing more is known.
	Processes []string
	Above     func() (processes []string, complete bool)
	// Held is Above for a caller over TCP on this machine; it is called when a session is
	// bound. told is false if the system cannot tell the process of the connection, and
	// for remote callers: only the token is checked then. Nil: it never can.
	Held func() (processes []string, told bool)
}

// within reports whether the caller may use the token of a session that is bound to a
// process, as far as that can be determined.
func (c Caller) within(instance string) bool {
	if c.Unix {
		return c.below(instance)
	}
	if c.Held == nil {
		return true
	}
	processes, told := c.Held()
	return !told || slices.Contains(processes, instance)
}

// below reports whether the caller is the process, or known to be below it.
func (c Caller) below(instance string) bool {
	if slices.Contains(c.Processes, instance) {
		return true
	}
	if c.Above == nil {
		return false
	}
	above, _ := c.Above()
	return slices.Contains(above, instance)
}

// Note makes the audit record of an act on a session that is about to be committed. The
// record must be on disk before (store.Tx.Note). It may be called more than once, and
// must not keep its argument. An act whose Note is nil, or returns nil, fails with
// store.ErrUnrecorded and has no effect.
type Note func(*Session) any

// Options configure a Keeper.
type Options struct {
	DB           *store.DB // opened with Migrations
	Dir          string    // state directory, for session.keys
	Installation string    // tokens and rows of another one are not accepted
	Log          *slog.Logger
	Now          func() time.Time           // nil: time.Now
	Gone         func(instance string) bool // nil: peer.Gone
	// Record makes the record of an end that Run saves: of an expiry, of the end of a
	// process, or one that End could not save. It is required, and the rules of Note
	// apply to it.
	Record Note
	// Ended is called once for each session that ends, for any reason, without a lock
	// held. For sessions that ended while no daemon ran, it is called at the first turn
	// of Run. It must not block for long. nil: it is not called.
	Ended func(s Session)
}

// Keeper manages the sessions of one installation. Its methods are safe for concurrent
// use.
type Keeper struct {
	o      Options
	rows   rows
	tokens tokens
	ring   atomic.Pointer[ring]
	read   readings        // readings of tokens under ring
	place  *durable.Pinned // the directory entry of the key file
	limits limits
	count  counters
	over   chan struct{} // always closed; Done returns it for an unknown session
	poke   chan struct{} // makes Run look at once
	slow   chan struct{} // makes Run save at once

	mu       sync.RWMutex
	sessions map[string]*entry
	grants   map[digest]*grant
	live     map[string]int // live sessions, by subject
	alive    int            // live sessions
	untold   []Session      // ends that were not reported to Options.Ended yet
}

// rows reads and writes the rows of sessions and tokens.
type rows struct{ o *Options }

// tokens makes and compares the payloads of tokens.
type tokens struct {
	aud string // the installation in the form that tokens have
}

// entry is a session with its state. Keeper.mu guards it, except acting, which is taken
// before mu.
type entry struct {
	Session
	ttl     time.Duration
	done    chan struct{}
	grants  []*grant
	unsaved bool // it has ended here, and the database does not have the end

	acting sync.Mutex // one act on its row at a time, so that memory follows the rows in their order
}

// grant is one token of a session, as its row describes it. Keeper.mu guards until; the
// rest never changes.
type grant struct {
	id       digest // of its sid
	of       *entry
	iat, exp int64     // as in the token, in seconds since 1970
	until    time.Time // the token is refused from then on
}

// limits are the bounds of what is kept in memory.
type limits struct {
	subject, all int // live sessions
	ended        int // ended sessions; beyond it the oldest are deleted early
	renewals     int // tokens of a session that were replaced and are still valid
}

// Sessions returns the live sessions and those that ended within 30 days, newest first.
func (k *Keeper) Sessions() []Session {
	k.mu.RLock()
	defer k.mu.RUnlock()
	all := make([]Session, 0, len(k.sessions))
	for _, e := range k.sessions {
		all = append(all, *e.copy())
	}
	slices.SortFunc(all, func(a, b Session) int {
		return cmp.Or(b.Issued.Compare(a.Issued), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Find returns one of Sessions.
func (k *Keeper) Find(id string) (Session, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	e := k.sessions[id]
	if e == nil {
		return Session{}, false
	}
	return *e.copy(), true
}

// Done returns a channel that is closed when the session ends. For an unknown session it
// is closed already.
func (k *Keeper) Done(id string) <-chan struct{} {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if e := k.sessions[id]; e != nil {
		return e.done
	}
	return k.over
}

// copy returns a copy of the session. The caller holds Keeper.mu.
func (e *entry) copy() *Session {
	s := e.Session
	s.Scope = slices.Clone(s.Scope)
	return &s
}

// add publishes a session. The caller holds Keeper.mu, or is the only user.
func (k *Keeper) add(e *entry) {
	k.sessions[e.ID] = e
	for _, g := range e.grants {
		k.grants[g.id] = g
	}
	if e.Ended.IsZero() {
		k.live[e.Subject]++
		k.alive++
	}
}

// end ends a session in memory, and reports whether it was live. The caller holds
// Keeper.mu; when end returns true, the caller calls Options.Ended after releasing it.
func (k *Keeper) end(e *entry, at time.Time, reason string) bool {
	if !e.Ended.IsZero() {
		return false
	}
	e.Ended, e.Reason = at, reason
	close(e.done)
	if k.live[e.Subject]--; k.live[e.Subject] == 0 {
		delete(k.live, e.Subject)
	}
	k.alive--
	k.count.ended(reason)
	return true
}

// newEntry makes an entry that is not published yet.
func newEntry(s Session, ttl time.Duration) *entry {
	e := &entry{Session: s, ttl: ttl, done: make(chan struct{})}
	if !s.Ended.IsZero() {
		close(e.done)
	}
	return e
}

// refreshAfter returns when the holder of the newest token should renew it: after three
// quarters of its life. It returns the end of the token when a renewal has reached
// MaxLife, so that a further one could not extend it.
func refreshAfter(first, issued, expires time.Time) time.Time {
	if !issued.Equal(first) && !expires.Before(first.Add(MaxLife)) {
		return expires
	}
	return issued.Add(expires.Sub(issued) * 3 / 4).Truncate(time.Second)
}

// milli truncates a time to the precision of the database.
func milli(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }
