package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/principal"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// dialTime bounds a start: package runners may have to install first.
const dialTime = 90 * time.Second

// link is one place towards a server: a connection when there is one, and
// what is needed to open it again after it was lost.
type link struct {
	r      *Relay
	b      *backend
	who    *principal.Principal
	client front.Era       // of the clients that use it
	init   []byte          // initialize params for a legacy server
	shared bool            // by several sessions
	opened func(*liveConn) // told of each new connection; may be nil

	live atomic.Pointer[liveConn]
	used atomic.Int64
	hub  hub

	mu     sync.Mutex
	dial   chan struct{} // closed when the dial under way ends
	err    error         // of the last dial
	closed bool
	asks   map[string]context.CancelFunc // server's requests under way, by raw id
}

// liveConn is an open connection and what its server said at the start.
type liveConn struct {
	conn  upstream.Conn
	era   front.Era
	hello []byte // InitializeResult or DiscoverResult, raw
}

func newLink(r *Relay, b *backend, who *principal.Principal, client front.Era) *link {
	l := &link{r: r, b: b, who: who, client: client, init: defaultInit(r.info)}
	l.hub.link = l
	l.used.Store(time.Now().UnixNano())
	return l
}

// defaultInit declares no capability: what no client can be asked for must
// not be offered.
func defaultInit(info []byte) []byte {
	p := []byte(`{"protocolVersion":"` + wire.LatestLegacy + `","capabilities":{},"clientInfo":`)
	return append(append(p, info...), '}')
}

// get returns the open connection, or opens one. Several callers share one
// dial; each waits as long as its own context allows.
func (l *link) get(ctx context.Context) (*liveConn, error) {
	if c := l.live.Load(); c != nil && c.alive() {
		return c, nil
	}
	l.mu.Lock()
	if c := l.live.Load(); c != nil && c.alive() {
		l.mu.Unlock()
		return c, nil
	}
	if l.closed {
		l.mu.Unlock()
		return nil, fmt.Errorf("connection closed: %w", upstream.ErrNotSent)
	}
	if l.dial == nil {
		l.dial = make(chan struct{})
		go l.open(l.dial)
	}
	wait := l.dial
	l.mu.Unlock()
	select {
	case <-wait:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := l.live.Load(); c != nil {
		return c, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return nil, l.err
}

func (c *liveConn) alive() bool {
	select {
	case <-c.conn.Done():
		return false
	default:
		return true
	}
}

// open dials once and publishes the outcome.
func (l *link) open(done chan struct{}) {
	ctx, cancel := context.WithTimeout(l.r.closing, dialTime)
	defer cancel()
	c, err := l.connect(ctx)
	l.mu.Lock()
	l.live.Store(c)
	l.err = err
	l.dial = nil
	closed := l.closed
	l.mu.Unlock()
	close(done)
	if c == nil {
		return
	}
	if closed {
		c.conn.Close()
	} else if l.opened != nil {
		l.opened(c)
	}
}

// connect tries the eras in turn, the clients' own first, so that nothing is
// bridged that need not be (protocol.md 3.7).
func (l *link) connect(ctx context.Context) (*liveConn, error) {
	release, err := l.b.reserve()
	if err != nil {
		return nil, err
	}
	defer release()
	var last error
	for _, era := range l.b.eras(l.client) {
		c, err := l.connectAs(ctx, era)
		if err == nil {
			l.b.spoken.Or(eraBit(era))
			l.b.keep(c)
			return c, nil
		}
		last = err
		if !errors.Is(err, upstream.ErrEra) {
			break
		}
		l.b.lacks(era)
	}
	return nil, fmt.Errorf("connecting to server %s: %w", l.b.Name, last)
}

func (l *link) connectAs(ctx context.Context, era front.Era) (*liveConn, error) {
	var c upstream.Conn
	var hello []byte
	var err error
	if era == front.Modern {
		c, hello, err = l.b.Upstream.DialModern(ctx, l.meta(nil), l.event)
	} else {
		c, hello, err = l.b.Upstream.DialLegacy(ctx, l.init, l.event)
	}
	if err != nil {
		return nil, err
	}
	return &liveConn{conn: c, era: era, hello: hello}, nil
}

// meta is the _meta of requests that Doorward makes itself.
func (l *link) meta(more []byte) []byte {
	m := []byte(`{"` + wire.MetaVersion + `":"` + wire.LatestModern + `","` + wire.MetaCapabilities + `":{},"` + wire.MetaClientInfo + `":`)
	m = append(m, l.r.info...)
	m = append(m, more...)
	return append(m, '}')
}

// drop forgets a connection that turned out to be dead or forgotten.
func (l *link) drop(c *liveConn) {
	if l.live.CompareAndSwap(c, nil) {
		c.conn.Close()
	}
}

// busy reports whether a sweep must leave it alone.
func (l *link) busy() bool { return l.hub.watched() }

// close ends the connection for good.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	for _, cancel := range l.asks {
		cancel()
	}
	l.mu.Unlock()
	if c := l.live.Load(); c != nil {
		c.conn.Close()
	}
}

// event takes what the server says outside any call. It runs on the
// connection's reader and must not block.
func (l *link) event(e upstream.Event) {
	switch {
	case e.ID != nil:
		go l.asked(nil, keepEvent(e))
	case e.Method == "notifications/cancelled":
		l.retract(e.Params)
	default:
		l.hub.publish(e)
	}
}

// keepEvent copies an event that outlives its delivery: a connection reuses
// its buffers.
func keepEvent(e upstream.Event) upstream.Event {
	e.Params = append([]byte(nil), e.Params...)
	e.ID = append(wire.ID(nil), e.ID...)
	return e
}
