package listen

import (
	"context"
	"net/http"
)

// While a handler runs, http.Server reads from the connection on a goroutine, to notice when the
// client closes it. That costs a goroutine, a read without data, deadlines and two wake-ups for
// each request. Where the kernel reports the end of a connection instead (peer.Arrivals), this
// read ends at once and without data, and the report ends the context of the request.
//
// The read is recognized by its size. http.Server reads one byte only there: the body of a
// request with a Content-Length is read through a buffer that is empty before each read.

// backgroundRead is the size of the read with which http.Server waits for the end.
const backgroundRead = 1

// alert is the state of a connection whose end the kernel reports.
type alert struct {
	stop func() bool        // ends the watching; nil: it has not begun
	hung bool               // the other end was closed
	end  context.CancelFunc // ends the contexts of requests; nil: the connection rests
}

// Alert returns h for the requests of a listener. It has their contexts ended when their
// clients close the connections.
func (l *Listener) Alert(h http.Handler) http.Handler {
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
	if c.alert.stop == nil {
		stop, err := c.origin.Listener.opts.Arrivals.AwaitEnd(c.Conn, c.hangUp)
		if err != nil {
			return
		}
		c.alert.stop = stop
	}
	c.alerted.Store(!c.alert.hung)
}

// hangUp ends the context of the request that is served, after the client has closed the
// connection. A later request is not served in this way, so http.Server notices the end.
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

// without releases the context of a connection that rests.
func (c *conn) without() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alert.end = nil
}
