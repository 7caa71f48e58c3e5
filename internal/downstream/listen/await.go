package listen

import (
	"context"
	"net"
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
	c.mu.Lock()
	defer c.mu.Unlock()
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
// it (http.Hijacker) and a POST was answered. ahead is what was read of the next request;
// without it the connection rests. nil: it cannot be given back, or could not rest then.
func Back(ctx context.Context) func(ahead []byte) {
	if c, ok := ctx.Value(originKey{}).(*conn); ok && c.origin.Listener.Rests() && c.origin.Listener.resting.failed.Load() == nil {
		return c.back
	}
	return nil
}

func (c *conn) back(ahead []byte) {
	if c.origin.expelled.Load() {
		c.end()
		return
	}
	c.yields.Store(true)
	c.blank = mostBlank
	c.next(ahead)
}
