package listen

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// Ownership is the answer of the kernel's socket table about a loopback TCP caller.
type Ownership string

// The values of Ownership. They are observed: they may refuse, never admit.
const (
	OwnerNone    Ownership = ""        // not a loopback listener, or no owner was found
	OwnerSame    Ownership = "same"    // the daemon's own user
	OwnerOther   Ownership = "other"   // admitted only if a token is enforced
	OwnerUnknown Ownership = "unknown" // this system cannot tell
)

// Origin holds the facts about a connection, from its accept on.
type Origin struct {
	Listener *Listener
	Peer     *attest.Credentials // Unix sockets only; closed with the connection
	Spawn    string              // the started agent whose process tree contains Peer; empty: none
	Owner    Ownership           // loopback TCP
	OwnerUID uint32              // if OwnerSame or OwnerOther
	Local    netip.AddrPort      // TCP: the address the connection arrived on
	Remote   netip.AddrPort      // TCP: the other end

	// Facts is the state that the server keeps for the connection. ConnContext runs again
	// after a rest, and finds it here.
	Facts any

	expelled atomic.Bool
	held     bool // loopback: admitted because of the process that holds its other end
	holder   holding
}

// Expel ends the connection at its next read; the answer that is being written is still
// sent.
func (o *Origin) Expel() { o.expelled.Store(true) }

// HostAllowed is Listener.HostAllowed for this connection.
func (o *Origin) HostAllowed(host string) bool {
	return o != nil && o.Listener.HostAllowed(host, o.Local)
}

// OriginAllowed is Listener.OriginAllowed for this connection; it also accepts the
// literal address that the connection arrived on.
func (o *Origin) OriginAllowed(origin string) bool {
	return o != nil && o.Listener.originAllowedOn(origin, o.Local)
}

type originKey struct{}

// ConnContext puts the connection's Origin into ctx; it fits http.Server.ConnContext. For
// a connection that did not come from Accept of this listener, From returns nil.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if s, ok := c.(*conn); ok && s.origin.Listener == l {
		if l.Rests() {
			ctx = s.within(ctx)
		}
		return context.WithValue(ctx, originKey{}, s)
	}
	return ctx
}

// From returns the Origin of the connection of ctx. If it is nil, the request must be
// refused.
func From(ctx context.Context) *Origin {
	if c, ok := ctx.Value(originKey{}).(*conn); ok {
		return &c.origin
	}
	return nil
}

// Serve notes that the caller of a request is authenticated. The connection of ctx does not give
// way until the request has ended. False: it has given way, and the request must be refused.
func Serve(ctx context.Context) bool {
	c, ok := ctx.Value(originKey{}).(*conn)
	return ok && c.yields.CompareAndSwap(true, false)
}

// Unread returns peer.Unread for the connection of ctx; nil: there is none. The function
// does not hold ctx.
func Unread(ctx context.Context) func() (int, error) {
	if c, ok := ctx.Value(originKey{}).(*conn); ok {
		return c.unread
	}
	return nil
}

func (c *conn) unread() (int, error) { return peer.Unread(c.Conn) }

// HungUp returns peer.HungUp for the connection of ctx; nil: there is none. A connection that was
// closed here has hung up too. The function does not hold ctx.
func HungUp(ctx context.Context) func() bool {
	if c, ok := ctx.Value(originKey{}).(*conn); ok {
		return c.hungUp
	}
	return nil
}

func (c *conn) hungUp() bool { return c.isEnded() || peer.HungUp(c.Conn) }

// While a handler runs, http.Server reads from the connection on a goroutine, to notice when the
// client closes it. That costs a goroutine, a read without data, deadlines and two wake-ups for
// each request. Where the kernel reports the end of a connection instead (peer.Arrivals), this
// read ends at once and without data, and the report ends the contexts of the connection's
// requests.
//
// The read is recognized by its size. http.Server reads one byte only there: the body of a
// request with a Content-Length is read through a buffer that is empty before each read.

// backgroundRead is the size of the read with which http.Server waits for the end.
const backgroundRead = 1

// alert is the state of a connection whose end the kernel reports.
type alert struct {
	stop func() bool        // ends the watching; nil: it has not begun
	hung bool               // the connection was closed, here or at its other end
	end  context.CancelFunc // ends the contexts of requests; nil: the connection rests
}

// Alert returns h for the requests of l. Their contexts end when their clients close the
// connections.
func Alert(l *Listener, h http.Handler) http.Handler {
	if !l.Rests() {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(originKey{}).(*conn); ok && r.ContentLength > 0 {
			c.beAlert()
		}
		h.ServeHTTP(w, r)
	})
}

// beAlert begins to rely on the kernel, if the connection can be watched and is open. ConnState
// ends that, when http.Server has finished the request: its goroutine may read after the handler.
func (c *conn) beAlert() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if c.alert.stop == nil {
		stop, err := c.origin.Listener.opts.Arrivals.AwaitEnd(c.Conn, c.hangUp)
		if err != nil {
			return
		}
		c.alert.stop = stop
	}
	c.alerted.Store(!c.alert.hung)
}

// hangUp ends the context of the request that is served, after the connection was closed. A later
// request is not served in this way, so http.Server notices the end.
func (c *conn) hangUp() {
	c.mu.Lock()
	c.alert.hung = true
	end := c.alert.end
	c.mu.Unlock()
	if end != nil && c.alerted.Load() {
		end()
	}
}

// within returns the context of the connection's requests, until it rests.
func (c *conn) within(ctx context.Context) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, c.alert.end = context.WithCancel(ctx)
	return ctx
}

// ConnState notes that a request has ended; it fits http.Server.ConnState.
func (l *Listener) ConnState(c net.Conn, state http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	s, ok := c.(*conn)
	if !ok || state != http.StateIdle && state != http.StateHijacked {
		return
	}
	s.alerted.Store(false)
	if state == http.StateIdle {
		s.answered.Store(l.Rests())
		s.yields.Store(true)
	}
}

// conn is an admitted connection; for the Unix socket it contains the Guard. It has only
// the methods of net.Conn, because other ways to read the inner connection would bypass
// the checks here.
type conn struct {
	net.Conn
	origin Origin
	once   sync.Once
	seat   *seat // nil: not counted
	err    error

	yields   atomic.Bool // it gives way on a full listener
	answered atomic.Bool // a request has ended, and no deadline was set since
	idle     atomic.Bool // between two requests
	tired    atomic.Bool // the next Close lets the connection rest
	alerted  atomic.Bool // the end of the connection is reported while a handler runs

	mu      sync.Mutex // it guards the fields below
	awaited func()     // ends an await; nil: there was none
	ended   bool       // end was called
	limit   readLimit
	alert   alert

	ahead []byte // the begin of the next request, of a connection that was given back
	blank int    // how many CR and LF may stand in front of it
}

// Read returns io.EOF once the connection has been expelled. It does not close the
// connection then, because net/http reads ahead while the answer is being written. If the
// connection has changed hands, the bytes are dropped and the connection is closed.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == backgroundRead && c.alerted.Load() {
		return 0, nil
	}
	if c.origin.expelled.Load() {
		return 0, io.EOF
	}
	if n := copy(p, c.ahead); n > 0 { // it was checked when it was read
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil
		}
		return n, nil
	}
	n, err := c.timedRead(p)
	if n == 0 {
		c.tires(len(p), err)
		return n, err
	}
	c.roused(n)
	if reason := c.origin.changedHands(); reason != "" {
		c.end()
		c.origin.Listener.refuse(&c.origin, reason)
		return 0, io.EOF
	}
	return n, err
}

// CloseWrite lets http.Server end a response without truncating it.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
