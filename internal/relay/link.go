package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/upstream"
)

// link is a place for a connection to a server: the connection, if it is open, and what is
// needed to open it again.
type link struct {
	b *backend
	owner
	key    string                           // in the pool; empty for a session's own
	opened func(context.Context, *liveConn) // called with a new connection before its first use; may be nil
	meta   []byte                           // _meta of requests that Doorward makes itself
	opens  func(string, Face)               // called for a new connection; may be nil
	room   roomMaker
	ctx    context.Context // ends with the link
	end    context.CancelFunc

	live  atomic.Pointer[liveConn]
	used  atomic.Int64 // time of the last use in Unix nanoseconds
	calls atomic.Int32 // in flight
	warm  atomic.Bool  // opened ahead of need: it stays open without use
	tasks atomic.Bool  // a call asked for a task, which may still be working
	hub   hub
	asks  questioner
	late  latecomer

	mu   sync.Mutex
	dial *dialling // under way; nil when none is
}

// dialling is one attempt to open a connection, shared by all callers that wait
// for it.
type dialling struct {
	done chan struct{} // closed when c and err are set
	c    *liveConn
	err  error
}

// get returns the open connection, or opens one. Several callers share one
// dial; each waits as long as its own context and the server's limit allow.
func (l *link) get(ctx context.Context) (*liveConn, error) {
	if c := l.live.Load(); c != nil && c.alive() {
		return c, nil
	}
	d, err := l.dialled()
	if err != nil {
		return nil, err
	}
	ctx, cancel := l.b.limited(ctx)
	defer cancel()
	select {
	case <-d.done:
		return d.c, d.err
	case <-ctx.Done():
		if context.Cause(ctx) == context.DeadlineExceeded {
			return nil, failure.ErrStarting
		}
		return nil, ctx.Err()
	}
}

// dialled returns the attempt to wait for: a finished one if the connection is open, the one
// in progress, or a new one.
func (l *link) dialled() (*dialling, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.live.Load(); c != nil && c.alive() {
		d := &dialling{done: make(chan struct{}), c: c}
		close(d.done)
		return d, nil
	}
	if l.ctx.Err() != nil {
		return nil, fmt.Errorf("connection closed: %w", upstream.ErrNotSent)
	}
	if l.dial == nil {
		l.dial = &dialling{done: make(chan struct{})}
		go l.open(l.dial)
	}
	return l.dial, nil
}

// open dials once and publishes the outcome.
func (l *link) open(d *dialling) {
	limit := dialTime
	if l.b.Kind != upstream.KindStdio {
		limit = netTime
	}
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	dialer := dialer{owner: l.owner, b: l.b, meta: l.meta, asks: &l.asks, event: l.event, room: l.room}
	c, err := dialer.connect(ctx)
	if err == nil {
		l.prepare(ctx, c)
	}
	l.mu.Lock()
	l.dial = nil
	if err == nil && l.ctx.Err() != nil {
		c.rested.Store(true)
		c.conn.Close()
	}
	if err == nil {
		l.used.Store(time.Now().UnixNano())
		l.live.Store(c)
	}
	l.mu.Unlock()
	d.c, d.err = c, err
	close(d.done)
	if err == nil {
		l.hub.opened(c)
	}
}

// prepare restores on a new connection what was set up on the one before, each part for
// sideTime at most.
func (l *link) prepare(ctx context.Context, c *liveConn) {
	if c.era == front.Modern {
		l.b.adopt(l)
	}
	if f, ok := l.face(); ok && l.opens != nil {
		l.opens(l.b.Name, f)
	}
	if l.opened != nil {
		l.opened(ctx, c)
	}
	l.hub.restore(ctx, c)
}

// drop forgets a connection that has ended or is about to end, so that the next
// call opens a new one. A live connection stays, because its other calls are in
// flight.
func (l *link) drop(c *liveConn) {
	if !c.alive() || c.conn.Err() != nil {
		l.live.CompareAndSwap(c, nil)
	}
}

// busy reports whether a sweep must leave the link open.
func (l *link) busy() bool { return l.warm.Load() || l.calls.Load() > 0 || !l.hub.watchers.empty() }

// close ends the link for good, and fails what waits for it. It returns at once.
func (l *link) close() {
	l.end()
	l.mu.Lock()
	c := l.live.Load()
	l.mu.Unlock()
	if c != nil {
		c.rested.Store(true)
		c.conn.Close()
	}
}

// event takes one message of the server outside of calls. Messages arrive one after the
// other.
func (l *link) event(c *liveConn, e upstream.Event) {
	if e.Missed {
		l.hub.missed()
		return
	}
	if !l.asks.screened(c, &e) {
		return
	}
	switch {
	case e.ID != nil:
		l.asks.askedOutside(c, e)
	case e.Method == "notifications/cancelled":
		c.retract(e.Params)
	default:
		l.hub.publish(e)
	}
}

// face returns the face that the link is opened for; false: no link of this kind is opened
// ahead of need.
func (l *link) face() (f Face, ok bool) {
	if l.key == "" || l.b.Kind != upstream.KindStdio || l.b.Builtin != nil {
		return f, false
	}
	f = Face{Who: l.who.Name(), Modern: l.client == front.Modern, Caps: string(l.says.caps), Info: string(l.says.info)}
	return f, l.says.key(l.b.poolKey(l.who, l.client)) == l.key // else it is a further connection beside another
}
