package upstream

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// call is one request in flight on a connection whose answers arrive on a shared stream. The
// reader of the stream adds events and the reply and signals; the caller's own goroutine
// collects them.
//
// The goroutine that removes a call from the table owns its end: the reader that
// found the answer, or the caller that gave up. This makes pooling calls safe.
type call struct {
	id     int64
	on     func(Event)
	token  []byte // the client's progress token
	logs   string // the client that receives log messages with it
	listen bool   // a subscription: never taken for the one call in flight
	asks   bool   // Request.Asks

	events []Event // guarded by the table's lock
	size   int     // of events, in bytes; guarded by the table's lock

	reply Reply // written before done is set
	err   error // written before done is set
	done  atomic.Bool
	wake  chan struct{} // capacity 1; a signal may be stale, so the caller checks

	timer  *time.Timer
	expire <-chan time.Time // the timer's channel, nil without a limit
	idle   time.Duration    // longest silence, 0 without one
	until  time.Time        // when the total time is over, zero without a limit; used only with idle
	given  allowance        // the time that questions have given back
}

var calls = sync.Pool{New: func() any { return &call{wake: make(chan struct{}, 1)} }}

// takeCall makes a call that may take limit in total, and may be silent for idle; 0: no
// bound.
func takeCall(r *Request, on func(Event), limit, idle time.Duration) *call {
	c := calls.Get().(*call)
	c.on, c.token, c.logs, c.listen, c.asks = on, r.ProgressToken, r.Logs, r.Method == methodListen, r.Asks
	if idle > 0 {
		c.idle = idle
		if limit > 0 {
			c.until = time.Now().Add(limit)
		}
		limit = idle
	}
	if limit > 0 {
		c.arm(limit)
	}
	return c
}

func (c *call) arm(d time.Duration) {
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	c.expire = c.timer.C
}

// resetIdle restarts the limit of silence, because a message of the call has arrived.
func (c *call) resetIdle() {
	if c.idle <= 0 {
		return
	}
	d := c.idle
	if !c.until.IsZero() {
		d = min(d, time.Until(c.until))
	}
	c.arm(max(d, 0))
}

// extended gives the call the time back that questions of the server took, after its limit
// has passed. False: there is none.
func (c *call) extended() bool {
	d := c.given.more()
	if d <= 0 {
		return false
	}
	if !c.until.IsZero() {
		c.until = c.until.Add(d)
	}
	c.arm(d)
	return true
}

// late returns the error of a call whose limit has passed.
func (c *call) late() error {
	if c.idle > 0 && (c.until.IsZero() || time.Now().Before(c.until)) {
		return errIdle
	}
	return newFault(ErrTimeout, "")
}

// release returns the call to the pool. The caller must own its end.
func (c *call) release() {
	if c.expire != nil {
		c.timer.Stop()
	}
	select {
	case <-c.wake:
	default:
	}
	wake, timer := c.wake, c.timer
	*c = call{wake: wake, timer: timer}
	calls.Put(c)
}

// ring wakes the goroutine that waits on wake.
func ring(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// finish ends the call. Once done is set the caller may have returned, and the call may be
// reused, so c is not touched afterwards. A signal that comes then is stale, which is
// harmless.
func (c *call) finish(r Reply, err error) {
	wake := c.wake
	c.reply, c.err = r, err
	c.done.Store(true)
	ring(wake)
}

// pending is the table of the calls in flight on one connection.
type pending struct {
	mu      sync.Mutex
	last    int64 // the id minted last
	calls   map[int64]*call
	left    map[int64]time.Time // calls that may ask and were given up, until they are answered
	listens int                 // how many of calls are subscriptions
	end     error               // why the connection is over; nil while it is not
	max     int                 // bytes of events that may wait for one call
}

// add mints an id for c and puts it into the table.
func (p *pending) add(c *call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return unsent(p.end)
	}
	if p.calls == nil {
		p.calls = make(map[int64]*call)
	}
	p.last++
	c.id = p.last
	p.calls[c.id] = c
	if c.listen {
		p.listens++
	}
	return nil
}

// take removes a call; nil: it is not in the table. issued distinguishes a late answer from
// one with an id that was never used.
func (p *pending) take(id int64) (c *call, issued bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c = p.calls[id]
	p.remove(c)
	delete(p.left, id)
	return c, id > 0 && id <= p.last
}

// leftTime is how long a call that was given up counts as running at its server: most servers
// never answer one.
const leftTime = time.Minute

// giveUp is take for a call that its caller gives up, while its server may go on with it.
func (p *pending) giveUp(id int64, now time.Time) (c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c = p.calls[id]
	p.remove(c)
	if c != nil && c.asks {
		p.forget(now)
		if p.left == nil {
			p.left = make(map[int64]time.Time)
		}
		p.left[id] = now
	}
	return c
}

// forget drops the calls that were given up long ago. The caller holds mu.
func (p *pending) forget(now time.Time) {
	maps.DeleteFunc(p.left, func(_ int64, at time.Time) bool { return now.Sub(at) >= leftTime })
}

// abandoned reports whether a call that was given up still counts as running.
func (p *pending) abandoned(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	return len(p.left) > 0
}

func (p *pending) remove(c *call) {
	if c == nil {
		return
	}
	delete(p.calls, c.id)
	if c.listen {
		p.listens--
	}
}

// sole returns the id of the only call in flight, 0 if there is none or several.
// Subscriptions do not count, because their messages name them.
func (p *pending) sole() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls)-p.listens != 1 {
		return 0
	}
	for id, c := range p.calls {
		if !c.listen {
			return id
		}
	}
	return 0
}

// busy reports whether a call is in flight, without subscriptions.
func (p *pending) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > p.listens
}

// several reports whether more than one call is in flight, without subscriptions.
func (p *pending) several() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)-p.listens > 1
}

// token returns the client's progress token of a call in flight, nil if the call is over or
// the client gave none.
func (p *pending) token(id int64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[id]; c != nil {
		return c.token
	}
	return nil
}

// offered is the outcome of offering an event to a call.
type offered uint8

const (
	taken   offered = iota + 1
	absent          // no such call in flight
	deaf            // the call has no receiver
	crowded         // too many events wait for the call
)

// offer adds an event to those that wait for the call id.
func (p *pending) offer(id int64, ev Event) offered {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	switch {
	case c == nil:
		return absent
	case c.on == nil:
		return deaf
	case len(c.events) >= maxWaiting, c.size > 0 && c.size+ev.size() > p.max:
		return crowded
	}
	c.events = append(c.events, ev)
	c.size += ev.size()
	ring(c.wake)
	return taken
}

// offerLogs offers a log message to the oldest call of each client that receives them, and
// reports whether there was one.
func (p *pending) offerLogs(ev Event) (offered bool) {
	p.mu.Lock()
	oldest := make(map[string]int64)
	for id, c := range p.calls {
		if first, ok := oldest[c.logs]; c.logs != "" && (!ok || id < first) {
			oldest[c.logs] = id
		}
	}
	p.mu.Unlock()
	for _, id := range oldest {
		p.offer(id, ev)
	}
	return len(oldest) > 0
}

// collect removes and returns the events that wait for c.
func (p *pending) collect(c *call) []Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	events := c.events
	c.events, c.size = nil, 0
	return events
}

// stop ends the table, closes done and returns the calls that were in it, so that they can be
// failed. The first reason is kept; first reports whether this was the first. Both happen
// under the lock, so that a caller that the table refuses finds done closed.
func (p *pending) stop(end error, done chan struct{}) (broken map[int64]*call, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return nil, false
	}
	p.end = end
	close(done)
	broken = p.calls
	p.calls, p.listens = nil, 0
	return broken, true
}

// ended returns the reason given to stop, nil before.
func (p *pending) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// withToken replaces the progress token in params by the request's own id, which is unique on
// the connection and useless elsewhere.
func withToken(params []byte, id int64) []byte {
	return rawjson.SetIn(params, "_meta", rawjson.Edit{Key: "progressToken", Value: wire.IntID(id)})
}
