// Package session keeps the sessions of instruction delivery: who may read
// protected guidance for a while, and the token that proves it.
//
// A session makes the reader of a protected text known, so that it can be named
// in a record and stopped. The package knows neither HTTP nor MCP; its caller has
// passed the gate.
//
// Invariants: a token is valid only in the exact form in which it was issued,
// under a key of this installation, while its row and its session are in force.
// The row says what a session may read and for whom it was made; the token
// repeats that and decides nothing. The database holds a digest of the token's id
// and never the token. A binding only refuses. The answer to a refused caller is
// a constant, and no error, record or log line holds any part of a token.
//
// Keys and rows are on disk, so tokens outlive a restart. Limit: there is one
// Keeper for a state directory at a time, and it does not see what another one
// wrote since Open.
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

// Prefix begins every token.
const Prefix = "dws1."

// The tiers of content that a session may read.
const (
	Behavioural = "behavioural"
	Structural  = "structural"
)

// Why a session ended.
const (
	ReasonEnded   = "ended"   // by its holder
	ReasonRevoked = "revoked" // by an operator
	ReasonExpired = "expired" // by time
	ReasonProcess = "process" // with the process that it was bound to
)

// Limits, none of them configurable.
const (
	MaxToken  = 1024           // bytes
	MaxLife   = 24 * time.Hour // of a session, renewals included
	Tolerance = time.Minute    // by which clocks may differ
	Overlap   = 30 * time.Second
	Kept      = 30 * 24 * time.Hour // how long an ended session is known
)

var (
	// ErrUnknown: there is no such session, or it has ended.
	ErrUnknown = errors.New("no such session")
	// ErrRequest is wrapped by refusals of a Request; the rest says what of it.
	ErrRequest = errors.New("the session cannot be made as asked")
	// ErrTooMany: too many sessions live at once, of this subject or in all, or
	// a session was renewed too often within a minute.
	ErrTooMany = errors.New("too many sessions")
	// ErrUnsaved is wrapped where a session has ended and neither its row nor a
	// record says so yet. Run saves the end; the record is the caller's to make.
	ErrUnsaved = errors.New("the session has ended, but this is not saved yet")
)

// Session is one session of delivery. It holds nothing secret.
type Session struct {
	ID      string   // 16 hex, of the digest of the first token's id; stays when renewed
	Subject string   // principal name
	Scope   []string // of Behavioural and Structural, sorted
	Project string   // claimed; ^[a-z0-9][a-z0-9._-]{0,62}$ or empty
	Client  string   // claimed "name/version", one clean line of at most 128 bytes; decides nothing
	CI      bool     // made by an operator for CI
	Bind    string   // process instance, "BOOT/PID@START"; empty: not bound
	Maker   string   // id of the credential that it was made with; empty: of none that has one

	// Times are UTC. Issued is that of the first token, Expires that of the
	// newest; both are whole seconds, as in the token. A holder that wants to
	// go on does something from RefreshAfter on: Renew gives a later end while
	// there is one, which the Expires of its answer tells, and a new session
	// does always. It equals Expires once renewing cannot help.
	Issued, Expires, RefreshAfter time.Time
	Ended                         time.Time // zero: it lives
	Reason                        string    // why it ended
}

// Request is what a session is made of. TTL is at most MaxLife and that when it
// is 0; it is rounded up to whole seconds.
type Request struct {
	Subject, Project, Client, Bind, Maker string
	Scope                                 []string
	TTL                                   time.Duration
	CI                                    bool
}

// Caller is who presents a token. On the Unix socket what is said of it is the
// kernel's word; elsewhere only the token is looked at, and the process where
// one is found.
type Caller struct {
	Unix      bool
	Principal string
	// Processes are what is known at no cost, the caller's own process instance
	// first, as a rule that alone. Above names it and its ancestors, as peer.Ancestors
	// does, and is asked when a session is bound to a process that is not among
	// Processes. Whether its answer is complete changes nothing: who is not in
	// it is refused, whatever else there may be. Nil: nothing more is known.
	Processes []string
	Above     func() (processes []string, complete bool)
	// Held is Above for a caller over TCP on this machine, and is asked when a
	// session is bound. told is false where the system cannot tell whose the
	// connection is, and of callers elsewhere: the token alone is looked at then.
	// Nil: it is never told.
	Held func() (processes []string, told bool)
}

// within reports whether the caller may show the token of a session that is
// bound to a process, as far as that can be told.
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

// below reports whether the caller is a process, or known to be below it.
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

// Note makes, of what is about to be done to a session, the audit record that
// must be on disk before (store.Tx.Note). It may be called more than once, and
// must not keep its argument. An act whose Note is nil, or gives nil, fails with
// store.ErrUnrecorded and does nothing.
type Note func(*Session) any

// Options of a Keeper.
type Options struct {
	DB           *store.DB // opened with Migrations
	Dir          string    // state directory, of session.keys
	Installation string    // tokens and rows of another one are not ours
	Log          *slog.Logger
	Now          func() time.Time           // nil: time.Now
	Gone         func(instance string) bool // nil: peer.Gone
	// Record makes the record of an end that Run saves: by time, with a process,
	// or one that End could not save. It is required, and bound to the rules of a
	// Note.
	Record Note
	// Ended is called once for each session that ends, for any reason, without a
	// lock held; for sessions that ended while no daemon ran, at the first turn of
	// Run. It must not block for long. nil: it is not called.
	Ended func(s Session)
}

// Keeper keeps the sessions of one installation. Its methods may be called at
// once.
type Keeper struct {
	o      Options
	rows   rows
	tokens tokens
	ring   atomic.Pointer[ring]
	read   readings        // of tokens under ring
	place  *durable.Pinned // of the keys
	limits limits
	count  counters
	over   chan struct{} // closed: what is waited for where there is nothing
	poke   chan struct{} // Run looks at once
	slow   chan struct{} // Run saves at once

	mu       sync.RWMutex
	sessions map[string]*entry
	grants   map[digest]*grant
	live     map[string]int // sessions that live, by subject
	alive    int            // and in all
	untold   []Session      // ends that Options.Ended has not heard of
}

// rows are the rows of sessions and tokens in the database.
type rows struct{ o *Options }

// tokens says what a token has to say.
type tokens struct {
	aud string // Installation as tokens name it
}

// entry is a session with what belongs to it. Keeper.mu guards it, but for
// acting, which is taken before.
type entry struct {
	Session
	ttl     time.Duration
	done    chan struct{}
	grants  []*grant
	unsaved bool // it ended here, and the database does not know

	acting sync.Mutex // one act on its row at a time, so that memory follows the rows in their order
}

// grant is one token of a session: what its row knows of it. Keeper.mu guards
// until; the rest stays.
type grant struct {
	id       digest // of its sid
	of       *entry
	iat, exp int64     // as the token says, seconds since 1970
	until    time.Time // refused from here on
}

// limits are bounds of what is kept in memory.
type limits struct {
	subject, all int // sessions that live
	ended        int // sessions that have ended; beyond it the oldest are forgotten before their time
	renewals     int // tokens of a session that were replaced and still count
}

// Sessions are those that live and those that ended within 30 days, the newest
// first.
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

// Find is one of Sessions.
func (k *Keeper) Find(id string) (Session, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	e := k.sessions[id]
	if e == nil {
		return Session{}, false
	}
	return *e.copy(), true
}

// Done is closed when the session ends. It is closed already for one that is
// not known.
func (k *Keeper) Done(id string) <-chan struct{} {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if e := k.sessions[id]; e != nil {
		return e.done
	}
	return k.over
}

// copy is the session for somebody else. Keeper.mu is held.
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

// end ends a session in memory, once. The caller holds Keeper.mu; when end
// returns true it calls Options.Ended after releasing it.
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

// newEntry makes a session that is not published yet.
func newEntry(s Session, ttl time.Duration) *entry {
	e := &entry{Session: s, ttl: ttl, done: make(chan struct{})}
	if !s.Ended.IsZero() {
		close(e.done)
	}
	return e
}

// refreshAfter is when the holder of the newest token should do something: when
// three quarters of its life are over, or not before its end where a renewal
// has just shown that the end stays.
func refreshAfter(first, issued, expires time.Time) time.Time {
	if !issued.Equal(first) && !expires.Before(first.Add(MaxLife)) {
		return expires
	}
	return issued.Add(expires.Sub(issued) * 3 / 4).Truncate(time.Second)
}

// milli keeps what the database keeps of a time.
func milli(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }
