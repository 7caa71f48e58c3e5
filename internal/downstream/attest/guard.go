package attest

// The guarded connection. Invariant: no byte is read after a breach was detected.

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The reasons why a Guard ended a connection, as passed to onBreach.
const (
	BreachWriter      = "bytes came from a process other than the one that connected"
	BreachUnattested  = "bytes came without the credentials of their writer"
	BreachTruncated   = "control data did not fit and was cut off"
	BreachDescriptors = "descriptors were passed"
	BreachDead        = "bytes came from a connection whose process has ended"
)

// ErrBreach is the error of Read after a breach. The connection is then closed.
var ErrBreach = errors.New("the connection is no longer used only by the process that opened it")

// guard is a Unix connection of which only the bytes of the connecting process are read. It
// has the methods of net.Conn and CloseWrite. The other methods of the inner connection are
// not reachable, because they would read without the checks.
type guard struct {
	c        *net.UnixConn
	raw      syscall.RawConn
	creds    *Credentials
	onBreach func(reason string)
	broken   atomic.Bool

	mu      sync.Mutex // one read at a time; it guards the fields below
	receive func(fd uintptr) bool
	into    []byte
	got     received
}

// received is the result of one read.
type received struct {
	n      int
	errno  syscall.Errno
	breach string
}

// Guard wraps c so that every Read is checked against creds, the credentials of the
// connection's peer. Bytes written by another process, or by a process that has ended
// since, are not returned, and the connection ends. onBreach (may be nil) is called once
// with the reason, one of the Breach constants; it must not block. Write, the deadlines,
// Close and CloseWrite are those of c.
//
// On Linux each read carries the pid and uid of its writer. The uid is the current one, so
// a process that gives up the uid it connected with is refused. A peer whose pid is not
// visible here (PID 0) is checked by its uid alone. On macOS the audit token of the last
// user of the socket is compared with the one at the accept.
func Guard(c *net.UnixConn, creds *Credentials, onBreach func(reason string)) net.Conn {
	if onBreach == nil {
		onBreach = func(string) {}
	}
	g := &guard{c: c, creds: creds, onBreach: onBreach}
	g.arm()
	return g
}

// end closes the connection after a breach and reports the reason once.
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

// Control calls f with the descriptor of a connection made by Guard, to query the kernel
// without reading. It is false for any other connection.
func Control(c net.Conn, f func(fd uintptr)) bool {
	g, ok := c.(*guard)
	return ok && g.raw != nil && g.raw.Control(f) == nil
}
