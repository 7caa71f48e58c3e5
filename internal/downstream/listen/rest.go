package listen

import (
	"errors"
	"net"
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
// Server.IdleTimeout. If no byte of a next request has been read, Close keeps it open. After
// one has, which may have come with the request before, a rest would lose it. A connection
// with TLS does not rest, because its TLS state belongs to http.Server.

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

	failed atomic.Pointer[time.Time] // when a connection could not be watched; nil: the last one could
}

// rest describes one resting connection.
type rest struct {
	since time.Time
	stop  func() bool // ends the wait for data
}

// SetReadDeadline also notes whether the connection is between two requests. The deadline that
// http.Server sets after the end of a request is that of an idle connection. It sets the next
// one when four bytes of a request are there, with or without a read.
func (c *conn) SetReadDeadline(t time.Time) error {
	idle := c.answered.Load() && c.answered.Swap(false) // most calls change nothing, and only read
	if idle && c.origin.Listener.resting.pauses() {
		idle, t = false, t.Add(restTime-RestAfter)
	}
	if c.idle.Load() != idle {
		c.idle.Store(idle)
	}
	return c.limitReads(t)
}

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

// pauses reports whether an idle connection stays with http.Server, because the kernel refused
// to watch another one, as at fs.epoll.max_user_watches. After restTime one connection tries
// again.
func (r *resting) pauses() bool {
	last := r.failed.Load()
	if last == nil {
		return false
	}
	now := time.Now()
	return now.Sub(*last) < restTime || !r.failed.CompareAndSwap(last, &now)
}

// tires decides, after a read without data, whether the next Close lets the connection rest.
func (c *conn) tires(size int, err error) {
	if size == readBuffer && errors.Is(err, os.ErrDeadlineExceeded) && c.idle.Swap(false) {
		c.tired.Store(true)
	}
}

// roused notes that n bytes of a request were read. Until the fourth byte http.Server keeps the
// deadline of an idle connection. roused makes it later, because the connection cannot rest then
// and would be closed.
func (c *conn) roused(n int) {
	if c.idle.Load() && c.idle.Swap(false) && n < 4 {
		_ = c.limitReads(time.Now().Add(restTime)) // the next read fails too
	}
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
		c.stopWaiting()
		c.hangUp()                        // the kernel does not report an end that was made here
		c.origin.Listener.resting.take(c) // after ended is set, no further rest begins
		c.origin.Listener.yielding.forget(c)
		c.err = c.Conn.Close()
		c.origin.Peer.Close()
		if c.seat != nil {
			c.origin.Listener.seats.leave(*c.seat)
		}
	})
	return c.err
}

// add lets a connection rest; false: it has to be closed.
func (r *resting) add(c *conn, a *peer.Arrivals) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || c.isEnded() || c.SetDeadline(time.Time{}) != nil {
		return false
	}
	stop, err := a.Await(c.Conn, func() { c.wake() })
	if err != nil {
		now := time.Now()
		r.failed.Store(&now)
		return false
	}
	r.failed.Store(nil)
	if r.conns == nil {
		r.conns = make(map[*conn]rest)
	}
	r.conns[c] = rest{since: time.Now(), stop: stop}
	c.mu.Lock()
	c.alert.end = nil // a context that it does not need
	c.mu.Unlock()
	return true
}

// stopWaiting marks the connection as ended, so that it is neither awaited nor rests from then
// on, and ends an await. It is called before the connection is closed.
func (c *conn) stopWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.awaited != nil {
		c.awaited()
	}
	if c.alert.stop != nil {
		c.alert.stop()
	}
}

// isEnded reports whether end was called.
func (c *conn) isEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// take removes a connection and ends the wait for its data; false: it does not rest.
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

// old returns the connections whose rest began before a time.
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
	if !c.origin.Listener.resting.take(c) {
		return
	}
	if c.blank > 0 {
		c.begins()
		return
	}
	c.pass()
}

// mostBlank is how many CR and LF may stand in front of a request that follows a POST. Some
// clients send them behind its body (RFC 9112, 2.2), and net/http accepts as many.
const mostBlank = 4

// next lets the connection rest, or passes it to Accept with what was read of its next request.
func (c *conn) next(ahead []byte) {
	l := c.origin.Listener
	if c.ahead = c.unblank(ahead); c.ahead == nil && l.resting.add(c, l.opts.Arrivals) {
		return
	}
	_ = c.SetDeadline(time.Time{}) // the next read fails too
	c.pass()
}

// unblank returns b without the CR and LF in front of a request; nil: it has not begun.
func (c *conn) unblank(b []byte) []byte {
	for ; len(b) > 0 && c.blank > 0 && (b[0] == '\r' || b[0] == '\n'); b = b[1:] {
		c.blank--
	}
	if len(b) == 0 {
		return nil
	}
	c.blank = 0
	return b
}

// begins reads what may be in front of a request, after a rest.
func (c *conn) begins() {
	var b [mostBlank]byte
	_ = c.limitReads(time.Now().Add(RestAfter)) // the read fails too
	n, _ := c.Read(b[:c.blank])
	if n == 0 {
		c.end()
		return
	}
	c.next(b[:n])
}

// pass passes the connection to Accept.
func (c *conn) pass() {
	l := c.origin.Listener
	select {
	case <-l.done: // also if Accept is called
		c.end()
		return
	default:
	}
	select {
	case l.ready <- c:
	case <-l.done:
		c.end()
	}
}

// tend closes the connections that have rested too long, and all of them when the listener is
// closed.
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

// expire closes the connections whose rest began before a time.
func (l *Listener) expire(before time.Time) {
	for _, c := range l.resting.old(before) {
		if l.resting.take(c) {
			c.end()
		}
	}
}

// yielding finds the connections of a listener that give way when it is full (conn.yields): those
// on which no authenticated caller is served, such as a connection that rests, or one whose first
// request has not arrived. A caller without a credential can hold as many as it likes, and keeps
// out none. All connections are listed, so that a request changes only its own.
type yielding struct {
	mu    sync.Mutex
	conns map[*conn]struct{}
}

// add lists a new connection, which gives way.
func (y *yielding) add(c *conn) {
	c.yields.Store(true)
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.conns == nil {
		y.conns = make(map[*conn]struct{})
	}
	y.conns[c] = struct{}{}
}

func (y *yielding) forget(c *conn) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.conns, c)
}

// looks is how many connections giveWay compares.
const looks = 16

// giveWay closes a connection for one of seat to: of a few, one whose seat has the most
// connections. False: there is none.
func (y *yielding) giveWay(to seat, count func(seat) int) bool {
	c := y.greediest(to, count)
	for c != nil && !c.yields.CompareAndSwap(true, false) { // a caller is served meanwhile
		c = y.greediest(to, count)
	}
	if c == nil {
		return false
	}
	c.end()
	return true
}

// greediest returns the connection with the highest count among a few, in no order; nil: there is
// none. Those of the zero seat give way to that seat alone: callers with many
// addresses would take the places of the daemon's own user one by one.
func (y *yielding) greediest(to seat, count func(seat) int) (most *conn) {
	y.mu.Lock()
	defer y.mu.Unlock()
	looked := 0
	for c := range y.conns {
		if !c.yields.Load() || *c.seat == (seat{}) && to != (seat{}) {
			continue
		}
		if most == nil || count(*c.seat) > count(*most.seat) {
			most = c
		}
		if looked++; looked == looks {
			break
		}
	}
	return most
}
