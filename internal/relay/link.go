package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

const (
	// dialTime bounds the opening of a connection. How long a program may take to
	// start is its upstream's to say.
	dialTime = 15 * time.Minute
	// netTime bounds it for a server over the network.
	netTime = 90 * time.Second
	// sideTime bounds messages to a server outside of calls: the server may have
	// stopped reading.
	sideTime = 10 * time.Second
)

// owner is whose clients a link serves and what it declares for them to the server.
type owner struct {
	who     *principal.Principal // whose it is; nil when principals share it
	session *front.Session       // whose alone it is; nil for a pooled one
	client  front.Era            // of the clients that use it
	init    []byte               // initialize params for a legacy server
	says    declaration          // to the server, for the clients that share it
}

// private: one session's alone, so that whatever the server says on it is
// meant for that session.
func (o *owner) private() bool { return o.session != nil }

// shared reports a connection that legacy sessions with capabilities share.
func (o *owner) shared() bool {
	return o.client == front.Legacy && !o.private() && o.says.caps != nil
}

// link is one place for a connection to a server: the connection, if there is
// one, and what is needed to open it again.
type link struct {
	r *Relay
	b *backend
	owner
	key    string                           // in the pool; empty for a session's own
	opened func(context.Context, *liveConn) // before anybody uses a new one; may be nil
	ctx    context.Context                  // ends with the link
	end    context.CancelFunc

	live  atomic.Pointer[liveConn]
	used  atomic.Int64 // when, in Unix nanoseconds
	calls atomic.Int32 // in flight
	warm  atomic.Bool  // opened ahead of need: it stays without use
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

func newLink(r *Relay, b *backend, o owner) *link {
	l := &link{r: r, b: b, owner: o}
	l.ctx, l.end = context.WithCancel(r.closing)
	l.hub.link = l
	l.asks = questioner{owner: o, questions: questions{gate: r.gate, acts: &r.acts, server: b.Name}, rules: b.Scan, unasked: &b.unasked, known: &b.asking,
		leaving: &r.leaving, note: r.note, log: r.log, ctx: l.ctx, only: l.hub.only}
	l.late.link = l
	l.used.Store(time.Now().UnixNano())
	return l
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
	if l.b.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.b.Timeout)
		defer cancel()
	}
	select {
	case <-d.done:
		return d.c, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialled returns the attempt to wait for: a finished one, the one in progress,
// or a new one.
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
	c, err := l.connect(ctx)
	if err == nil {
		l.prepare(ctx, c)
	}
	l.mu.Lock()
	l.dial = nil
	if err == nil && l.ctx.Err() != nil {
		c.conn.Close()
	}
	if err == nil {
		l.live.Store(c)
	}
	l.mu.Unlock()
	d.c, d.err = c, err
	close(d.done)
	if err == nil {
		l.hub.opened(c)
	}
}

// prepare brings a new connection to where the one before stood.
func (l *link) prepare(ctx context.Context, c *liveConn) {
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	if l.opened != nil {
		l.opened(ctx, c)
	}
	l.hub.restore(ctx, c)
}

// connect tries the eras in turn, the clients' own first, so that nothing is
// bridged that need not be.
func (l *link) connect(ctx context.Context) (c *liveConn, err error) {
	defer func() { l.b.tried(ctx, err) }()
	if err := l.b.startable(); err != nil {
		return nil, fmt.Errorf("connecting to server %s: %w", l.b.Name, err)
	}
	release, err := l.b.reserve()
	if err != nil {
		return nil, err
	}
	defer release()
	defer l.b.alone(ctx)()
	l.pause(ctx)
	eras := l.b.eras(l.client)
	if l.b.Kind == upstream.KindStdio && l.b.Builtin == nil && len(eras) > 1 {
		c, err := l.connectEither(ctx, eras[0])
		return l.admit(c, err)
	}
	var last error
	for _, era := range eras {
		c, err := l.connectAs(ctx, era)
		if err == nil {
			return l.admit(c, nil)
		}
		last = err
		if !errors.Is(err, upstream.ErrEra) {
			break
		}
		l.b.lacks(era)
	}
	return nil, fmt.Errorf("connecting to server %s: %w", l.b.Name, last)
}

// admit enters a connection that has been opened.
func (l *link) admit(c *liveConn, err error) (*liveConn, error) {
	if err != nil {
		return nil, fmt.Errorf("connecting to server %s: %w", l.b.Name, err)
	}
	if !l.b.keep(c) {
		c.conn.Close()
		return nil, failure.ErrGone
	}
	l.b.spoken.Or(eraBit(c.era))
	if c.era == front.Modern {
		l.b.adopt(l)
	}
	l.b.owed.Started()
	l.b.greeted.Store(c)
	c.offers = offer.New(offer.Options{Conn: c.conn, Era: c.era, Hello: c.hello, Meta: c.meta, Guard: l.b.Pin, Caps: wire.Get(l.init, "capabilities"),
		Table: &l.b.params, Learn: c.era == front.Modern || l.client == front.Modern})
	if f, ok := faceOf(l); ok && l.r.opened != nil {
		l.r.opened(l.b.Name, f)
	}
	return c, nil
}

// shortPause is the longest pause between a server's end and its next start that
// a call waits for: a crash costs the call in progress, not the next one. When a
// server keeps ending, the caller is told at once.
const shortPause = time.Second

func (l *link) pause(ctx context.Context) {
	if l.b.Builtin != nil {
		return
	}
	wait := l.b.Upstream.Pause(l.init)
	if wait <= 0 || wait > shortPause {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// connectAs dials a server in one era.
func (l *link) connectAs(ctx context.Context, era front.Era) (*liveConn, error) {
	return l.dialWith(func(c *liveConn, on func(upstream.Event)) (err error) {
		c.era = era
		switch {
		case l.b.Builtin != nil:
			c.conn, c.hello = l.openBuiltin(era, on)
		case era == front.Modern:
			c.conn, c.hello, err = l.b.Upstream.DialModern(ctx, l.r.meta, on)
		default:
			c.conn, c.hello, err = l.b.Upstream.DialLegacy(ctx, l.init, on)
		}
		return err
	})
}

// connectEither starts a program whose era is not known, and notes what it lacks.
func (l *link) connectEither(ctx context.Context, first front.Era) (*liveConn, error) {
	return l.dialWith(func(c *liveConn, on func(upstream.Event)) error {
		conn, g, err := l.b.Upstream.DialEither(ctx, first == front.Modern, l.r.meta, l.init, on)
		if err != nil {
			return err
		}
		c.conn, c.hello, c.era = conn, g.Result, front.Legacy
		other := front.Modern
		if g.Modern {
			c.era, other = front.Modern, front.Legacy
		}
		if g.Only {
			l.b.lacks(other)
		}
		return nil
	})
}

// dialWith opens a connection with dial. A server may send messages before that has
// returned; they wait.
func (l *link) dialWith(dial func(*liveConn, func(upstream.Event)) error) (*liveConn, error) {
	c := &liveConn{ready: make(chan struct{})}
	err := dial(c, func(e upstream.Event) {
		<-c.ready
		l.event(c, e)
	})
	if err != nil {
		return nil, err
	}
	if c.era == front.Modern {
		c.meta = l.r.meta
	}
	if wire.HoldsQuestions(c.hello) {
		if c.hello, err = l.asks.questions.embedded(l.asks.outsideCalls(), c.hello); err != nil {
			close(c.ready)
			c.conn.Close()
			return nil, err
		}
	}
	close(c.ready)
	return c, nil
}

// drop forgets a connection that has ended or is about to end, so that the next
// call opens a new one. A live connection stays, because its other calls are in
// flight.
func (l *link) drop(c *liveConn) {
	if !c.alive() || c.conn.Err() != nil {
		l.live.CompareAndSwap(c, nil)
	}
}

// busy reports whether a sweep must leave it alone.
func (l *link) busy() bool { return l.warm.Load() || l.calls.Load() > 0 || l.hub.watched() }

// close ends the link for good, and with it what waits for it. It returns at
// once.
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

// event takes what the server says outside any call, one event after the
// other.
func (l *link) event(c *liveConn, e upstream.Event) {
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
