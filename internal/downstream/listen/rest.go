package listen

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// A connection without a request rests: http.Server has released its buffers and its
// goroutine, and gets it again from Accept when data arrives. To http.Server the
// connection has ended, and a new one begins; to the client it is one connection.
//
// A connection rests only between two requests. http.Server ends it there at the deadline of
// Server.IdleTimeout. If no byte of a next request has been read, Close keeps it open. A
// connection with TLS does not rest, because its TLS state belongs to http.Server.

const (
	// RestAfter is the Server.IdleTimeout of a listener whose connections rest.
	RestAfter = 2 * time.Second
	// restTime is how long a connection rests before it is closed.
	restTime = 3 * time.Minute
	// restSweep is the time between two searches for connections that have rested too long.
	restSweep = 15 * time.Second
	// readBuffer is the size of the buffer that http.Server reads into. A read with all of it
	// shows that the buffer is empty.
	readBuffer = 4 << 10
)

// resting holds the connections that rest.
type resting struct {
	mu    sync.Mutex
	conns map[*conn]rest
	over  bool // the listener was closed
}

// rest describes one resting connection.
type rest struct {
	since time.Time
	stop  func() bool // ends the wait for data
}

// Rests reports whether idle connections of the listener rest.
func (l *Listener) Rests() bool { return l.opts.Arrivals != nil && l.tls == nil }

// ConnState notes that a connection is between two requests; it fits http.Server.ConnState.
func (l *Listener) ConnState(c net.Conn, state http.ConnState) {
	if s, ok := c.(*conn); ok && state == http.StateIdle && l.Rests() {
		s.idle.Store(true)
	}
}

// tires decides, after a read without data, whether the next Close lets the connection rest.
func (c *conn) tires(size int, err error) {
	if size == readBuffer && errors.Is(err, os.ErrDeadlineExceeded) && c.idle.Swap(false) {
		c.tired.Store(true)
	}
}

// roused notes the first n bytes of a request. http.Server waits for the fourth with the
// deadline of an idle connection, which is then a longer one.
func (c *conn) roused(n int) {
	if c.idle.Swap(false) && n < 4 {
		_ = c.Conn.SetReadDeadline(time.Now().Add(restTime)) // the next read fails too
	}
}

// add lets a connection rest; false: it has to be closed.
func (r *resting) add(c *conn, a *peer.Arrivals) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || c.SetDeadline(time.Time{}) != nil {
		return false
	}
	stop, err := a.Await(c.Conn, func() { c.wake() })
	if err != nil {
		return false
	}
	if r.conns == nil {
		r.conns = make(map[*conn]rest)
	}
	r.conns[c] = rest{since: time.Now(), stop: stop}
	return true
}

// take removes a connection; false: it does not rest.
func (r *resting) take(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.conns[c]
	if ok {
		one.stop()
		delete(r.conns, c)
	}
	return ok
}

// old returns the connections that rest since before.
func (r *resting) old(before time.Time) (all []*conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c, one := range r.conns {
		if one.since.Before(before) {
			all = append(all, c)
		}
	}
	return all
}

// wake passes a connection with data to Accept.
func (c *conn) wake() {
	l := c.origin.Listener
	if !l.resting.take(c) {
		return
	}
	select {
	case l.ready <- c:
	case <-l.done:
		c.end()
	}
}

// tend closes the connections that have rested too long, and when the listener is closed all
// of them.
func (l *Listener) tend() {
	tick := time.NewTicker(restSweep)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			l.expire(now.Add(-restTime))
		case <-l.done:
			l.resting.mu.Lock()
			l.resting.over = true
			l.resting.mu.Unlock()
			l.expire(time.Now().Add(time.Hour))
			return
		}
	}
}

// expire closes the connections that rest since before.
func (l *Listener) expire(before time.Time) {
	for _, c := range l.resting.old(before) {
		if l.resting.take(c) {
			c.end()
		}
	}
}

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

// stopWaiting ends an await before the connection is closed.
func (c *conn) stopWaiting() {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	c.ended = true
	if c.awaited != nil {
		c.awaited()
	}
}

func (c *conn) unread() (int, error) { return peer.Unread(c.Conn) }

// conn is an admitted connection; for the Unix socket it contains the Guard. It has only
// the methods of net.Conn, because other ways to read the inner connection would bypass
// the checks here.
type conn struct {
	net.Conn
	origin Origin
	once   sync.Once
	leave  func()
	err    error
	idle   atomic.Bool // between two requests
	tired  atomic.Bool // the next Close lets it rest

	waiting sync.Mutex
	awaited func() // ends an await
	ended   bool
}

// Read returns io.EOF once the connection has been expelled. It does not close the
// connection then, because net/http reads ahead while the answer is being written. If the
// connection has changed hands, the bytes are dropped and the connection is closed.
func (c *conn) Read(p []byte) (int, error) {
	if c.origin.expelled.Load() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
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

// Close closes the connection, or lets it rest.
func (c *conn) Close() error {
	l := c.origin.Listener
	if c.tired.Swap(false) && l.resting.add(c, l.opts.Arrivals) {
		return nil
	}
	return c.end()
}

// end closes the connection, releases its process handle and its count.
func (c *conn) end() error {
	c.once.Do(func() {
		c.origin.Listener.resting.take(c)
		c.stopWaiting()
		c.err = c.Conn.Close()
		c.origin.Peer.Close()
		c.leave()
	})
	return c.err
}

// CloseWrite lets http.Server end a response without truncating it.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
