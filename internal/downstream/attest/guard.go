package attest

// The guarded connection. Invariant: once a breach was seen, no byte is read any more.

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Why a Guard ended a connection, as its onBreach hears it.
const (
	BreachWriter      = "bytes came from another process than the one that connected"
	BreachUnattested  = "bytes came without the credentials of their writer"
	BreachTruncated   = "control data did not fit and was cut off"
	BreachDescriptors = "descriptors were passed"
	BreachDead        = "bytes came from a connection whose process has ended"
)

// ErrBreach is what Read answers once the connection was not what it was
// accepted as. It is closed then.
var ErrBreach = errors.New("the connection is no longer its connector's alone")

// guard is a Unix connection that only the process which connected it can
// speak on. It has net.Conn's methods and CloseWrite; the connection inside
// has further ways to read, and none of them is reachable.
type guard struct {
	c        *net.UnixConn
	raw      syscall.RawConn
	creds    *Credentials
	onBreach func(reason string)
	broken   atomic.Bool

	mu      sync.Mutex // one read at a time; it holds what follows
	receive func(fd uintptr) bool
	into    []byte
	got     received
}

// received is what one read brought.
type received struct {
	n      int
	errno  syscall.Errno
	breach string
}

// Guard wraps c so that every Read is checked against creds, the credentials of
// the connection's peer. Bytes written by another process, or by a process that
// has ended since, are not returned, and the connection ends. onBreach (may be
// nil) is called once with the reason, one of the Breach constants; it must not
// block. Write, the deadlines, Close and CloseWrite are those of c.
//
// On Linux each read carries the pid and uid of its writer. The uid is the
// current one, so a process that gives up the uid it connected with is refused. A
// peer whose pid is not visible here (PID 0) is checked by its uid alone. On
// macOS the audit token of the last user of the socket is compared before and
// after.
func Guard(c *net.UnixConn, creds *Credentials, onBreach func(reason string)) net.Conn {
	if onBreach == nil {
		onBreach = func(string) {}
	}
	g := &guard{c: c, creds: creds, onBreach: onBreach}
	g.arm()
	return g
}

// end closes the connection of a breach and says so once.
func (g *guard) end(reason string) error {
	if g.broken.CompareAndSwap(false, true) {
		g.c.Close()
		g.onBreach(reason)
	}
	return ErrBreach
}

func (g *guard) Write(p []byte) (int, error)        { return g.c.Write(p) }
func (g *guard) Close() error                       { return g.c.Close() }
func (g *guard) CloseWrite() error                  { return g.c.CloseWrite() }
func (g *guard) LocalAddr() net.Addr                { return g.c.LocalAddr() }
func (g *guard) RemoteAddr() net.Addr               { return g.c.RemoteAddr() }
func (g *guard) SetDeadline(t time.Time) error      { return g.c.SetDeadline(t) }
func (g *guard) SetReadDeadline(t time.Time) error  { return g.c.SetReadDeadline(t) }
func (g *guard) SetWriteDeadline(t time.Time) error { return g.c.SetWriteDeadline(t) }

// Control calls f with the descriptor of a connection that Guard has made, to ask
// the kernel about it without reading. False: Guard has not made it.
func Control(c net.Conn, f func(fd uintptr)) bool {
	g, ok := c.(*guard)
	return ok && g.raw != nil && g.raw.Control(f) == nil
}
