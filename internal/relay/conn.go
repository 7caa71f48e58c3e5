package relay

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// liveConn is an open connection and what its server said at the start.
type liveConn struct {
	conn  upstream.Conn
	era   front.Era
	hello []byte        // InitializeResult or DiscoverResult, raw
	ready chan struct{} // closed when the fields above are set

	meta   []byte // of Doorward's own requests, see era.OwnParams
	offers *offer.Offers

	mu      sync.Mutex
	shelves map[string]*listing.Known   // lists that the server has answered
	asks    map[string]*pendingQuestion // the server's requests under way, by raw id
	// verbosity is how many levels of log messages modern clients have had the server
	// write; 0: none has named a level.
	verbosity int

	running map[*running]bool // calls in flight that may ask
	rested  atomic.Bool       // Doorward ends it, since it is not needed
}

// pendingQuestion is a request of a server while its client thinks about it.
type pendingQuestion struct {
	cancel    context.CancelFunc
	retracted bool // the server wants no answer any more
}

func (c *liveConn) alive() bool {
	select {
	case <-c.conn.Done():
		return false
	default:
		return true
	}
}

// note enters a question. It is nil when there are most already, and for a second
// one under the id of the first, which one answer would answer both.
func (c *liveConn) note(id wire.ID, most int, cancel context.CancelFunc) *pendingQuestion {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asks) >= most || c.asks[string(id)] != nil {
		return nil
	}
	if c.asks == nil {
		c.asks = make(map[string]*pendingQuestion)
	}
	q := &pendingQuestion{cancel: cancel}
	c.asks[string(id)] = q
	return q
}

// settle takes a question out and reports whether its answer is still wanted.
func (c *liveConn) settle(id wire.ID, q *pendingQuestion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asks, string(id))
	return !q.retracted
}

// retract ends the question that a notifications/cancelled of the server names.
func (c *liveConn) retract(params []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.asks[string(wire.Get(params, "requestId"))]; q != nil {
		q.retracted = true
		q.cancel()
	}
}

// running is a call in flight that may ask.
type running struct {
	asked string          // method and name, for what is learnt of the server
	x     *front.Exchange // of a session that shares the connection
	call  inFlight        // of a modern client
}

// inFlight is a call of a modern client under way.
type inFlight interface {
	ask(upstream.Event)
	waits() bool // for an answer of its client
}

// begins and ends keep the calls in flight that may ask, to find out whose a
// question is that does not say so.
func (c *liveConn) begins(r *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(map[*running]bool)
	}
	c.running[r] = true
}

func (c *liveConn) ends(r *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, r)
}

func (c *liveConn) calling() []*running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.running))
}

// candidates are the calls of modern clients that can have asked a question: those that
// wait for no answer, and without any of these the others.
func (c *liveConn) candidates() []*running {
	all := c.calling()
	if free := slices.DeleteFunc(slices.Clone(all), func(r *running) bool { return r.call.waits() }); len(free) > 0 {
		return free
	}
	return all
}

// sideTime bounds messages to a server outside of calls: the server may have
// stopped reading.
const sideTime = 10 * time.Second
