package listen

import (
	"errors"
	"net"
	"time"
)

// readLimit is the deadline for the reads of a connection. http.Server sets ten for each request,
// and most of them are followed by another one before the next read. Setting one changes a timer
// of the runtime, so it is done only for a read: at its begin, or at once when one is under way.
type readLimit struct {
	wanted time.Time // zero: none
	set    time.Time // on the inner connection
	reads  int       // that are under way; with one, set is wanted
}

// limitReads sets the deadline for reads. It fails when the connection was closed here.
func (c *conn) limitReads(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return net.ErrClosed
	}
	c.limit.wanted = t
	if c.limit.reads > 0 {
		return c.applyLimit()
	}
	return nil
}

// applyLimit sets the wanted deadline on the inner connection. The caller holds mu.
func (c *conn) applyLimit() error {
	if c.limit.set.Equal(c.limit.wanted) {
		return nil
	}
	c.limit.set = c.limit.wanted
	return c.Conn.SetReadDeadline(c.limit.set)
}

// timedRead reads from the inner connection until the deadline.
func (c *conn) timedRead(p []byte) (int, error) {
	c.mu.Lock()
	c.limit.reads++
	_ = c.applyLimit() // the read fails too
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.limit.reads--
	c.mu.Unlock()
	return n, err
}

// SetDeadline sets the deadlines for reads and writes.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.limitReads(t), c.SetWriteDeadline(t))
}
