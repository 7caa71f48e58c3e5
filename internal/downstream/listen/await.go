package listen

import (
	"context"
	"net"
	"time"
)

// Await calls f on a goroutine of its own when a connection of this package can be read, or
// was closed here. Until then there is no goroutine. False: the connection cannot be watched,
// and f is not called.
func Await(c net.Conn, f func()) bool {
	s, ok := c.(*conn)
	return ok && s.await(f)
}

func (c *conn) await(f func()) bool {
	l := c.origin.Listener
	c.waiting.Lock()
	defer c.waiting.Unlock()
	if !l.Rests() || c.ended {
		return false
	}
	stop, err := l.opts.Arrivals.Await(c.Conn, f)
	if err != nil {
		return false
	}
	c.awaited = func() {
		if stop() {
			go f()
		}
	}
	return true
}

// Back returns a function that gives the connection of ctx back after http.Server was relieved of
// it (http.Hijacker) and the request was answered. ahead is what was read of the next request;
// without it the connection rests. nil: it cannot be given back.
func Back(ctx context.Context) func(ahead []byte) {
	if c, ok := ctx.Value(originKey{}).(*conn); ok && c.origin.Listener.Rests() {
		return c.back
	}
	return nil
}

func (c *conn) back(ahead []byte) {
	l := c.origin.Listener
	if len(ahead) == 0 {
		c.tired.Store(true)
		c.Close()
		return
	}
	c.ahead = ahead
	_ = c.SetDeadline(time.Time{}) // the next read fails too
	select {
	case l.ready <- c:
	case <-l.done:
		c.end()
	}
}

// stopWaiting marks the connection as ended, so that it is neither awaited nor rests from then
// on, and ends an await. It is called before the connection is closed.
func (c *conn) stopWaiting() {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	c.ended = true
	if c.awaited != nil {
		c.awaited()
	}
}
