package listen

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/doorward/doorward/internal/downstream/attest"
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

// Unread returns peer.Unread for the connection of ctx; nil: there is none. The function
// does not hold ctx.
func Unread(ctx context.Context) func() (int, error) {
	if c, ok := ctx.Value(originKey{}).(*conn); ok {
		return c.unread
	}
	return nil
}
