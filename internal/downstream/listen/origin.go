package listen

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// Ownership is what the kernel's socket table says of a loopback TCP caller.
type Ownership string

// The states. Every fact of this kind is observed: it may refuse, never admit.
const (
	OwnerNone    Ownership = ""        // not a loopback listener, or nobody was found
	OwnerSame    Ownership = "same"    // the daemon's own user
	OwnerOther   Ownership = "other"   // comes in only where a token is enforced
	OwnerUnknown Ownership = "unknown" // this system cannot tell
)

// Origin is what is known of a connection, from the moment of its accept.
type Origin struct {
	Listener *Listener
	Peer     *attest.Credentials // Unix sockets only; lives as long as the connection
	Spawn    string              // the started agent whose tree Peer is in; empty for all others
	Owner    Ownership           // loopback TCP
	OwnerUID uint32              // when OwnerSame or OwnerOther
	Local    netip.AddrPort      // TCP: the address the connection arrived on
	Remote   netip.AddrPort      // TCP: the other end

	expelled atomic.Bool
	held     bool // loopback: it was admitted for the process that holds its other end
	holder   holding
}

// Expel lets the answer that is being written go out, and ends the connection
// at its next read.
func (o *Origin) Expel() { o.expelled.Store(true) }

// HostAllowed is Listener.HostAllowed for this connection.
func (o *Origin) HostAllowed(host string) bool {
	return o != nil && o.Listener.HostAllowed(host, o.Local)
}

// OriginAllowed is Listener.OriginAllowed for this connection; the literal
// address that it arrived on counts too.
func (o *Origin) OriginAllowed(origin string) bool {
	return o != nil && o.Listener.originAllowedOn(origin, o.Local)
}

type originKey struct{}

// ConnContext puts the connection's Origin into ctx; it fits
// http.Server.ConnContext. A connection that did not come from Accept of this
// listener gets none, and From answers nil.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if s, ok := c.(*conn); ok && s.origin.Listener == l {
		return context.WithValue(ctx, originKey{}, s)
	}
	return ctx
}

// From returns what is known of the connection that ctx belongs to; nil when
// nothing is, and then the request must be refused.
func From(ctx context.Context) *Origin {
	if c, ok := ctx.Value(originKey{}).(*conn); ok {
		return &c.origin
	}
	return nil
}

// Unread is peer.Unread for the connection that ctx belongs to; nil when there
// is none. It keeps nothing of ctx.
func Unread(ctx context.Context) func() (int, error) {
	if c, ok := ctx.Value(originKey{}).(*conn); ok {
		return c.unread
	}
	return nil
}

func (c *conn) unread() (int, error) { return peer.Unread(c.Conn) }

// conn is an admitted connection; one of the Unix socket contains its Guard. It
// offers only the methods of net.Conn, because other ways to read the inner
// connection would bypass the checks here.
type conn struct {
	net.Conn
	origin Origin
	once   sync.Once
	leave  func()
	err    error
}

// Read reads, unless the connection has been expelled; then it returns io.EOF.
// The connection is not closed here, because net/http reads ahead while the
// answer is being written. Bytes that arrive after the connection has changed
// hands are not returned, and end it.
func (c *conn) Read(p []byte) (int, error) {
	if c.origin.expelled.Load() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	if reason := c.origin.changedHands(); reason != "" {
		c.Close()
		c.origin.Listener.refuse(&c.origin, reason)
		return 0, io.EOF
	}
	return n, err
}

// Close closes the connection, releases its process handle and its seat.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.err = c.Conn.Close()
		c.origin.Peer.Close()
		c.leave()
	})
	return c.err
}

// CloseWrite lets http.Server end a response without cutting it off.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
