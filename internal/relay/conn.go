package relay

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/offer"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// liveConn is an open connection with its server's greeting.
type liveConn struct {
	conn  upstream.Conn
	era   front.Era
	hello []byte        // InitializeResult or DiscoverResult, raw
	ready chan struct{} // closed when the fields above are set

	meta   []byte // _meta of Doorward's own requests, see era.OwnParams
	offers *offer.Offers

	mu      sync.Mutex
	shelves map[string]*listing.Known   // lists that the server has answered, kept for reuse
	asks    map[string]*pendingQuestion // the server's requests under way, by raw id
	// verbosity is the number of log levels that the server has been told to write for the
	// clients that share it; 0: none has named a level. writes is the number that it has
	// accepted.
	verbosity, writes int

	answering int      // settled questions whose answers are being sent
	refusals  refusals // that wait to be sent

	running map[*running]bool // calls in flight that may ask
	rested  atomic.Bool       // Doorward closed it because it was not needed
}

// pendingQuestion is a request of a server that its client has not answered yet.
type pendingQuestion struct {
	cancel    context.CancelFunc
	retracted bool // the server has withdrawn it
}

func (c *liveConn) alive() bool {
	select {
	case <-c.conn.Done():
		return false
	default:
		return true
	}
}

// note enters a question. It returns nil when most are open already or wait for the server to
// read their answers, and for a second question under an id that is open, because one answer
// would answer both.
func (c *liveConn) note(id wire.ID, most int, cancel context.CancelFunc) *pendingQuestion {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asks) >= most || c.answering >= most || c.asks[string(id)] != nil {
		return nil
	}
	if c.asks == nil {
		c.asks = make(map[string]*pendingQuestion)
	}
	q := &pendingQuestion{cancel: cancel}
	c.asks[string(id)] = q
	return q
}

// settle removes a question, reports whether its answer is still wanted, and if it is calls
// answer, which sends it. answer may be nil for a question that the server has withdrawn.
func (c *liveConn) settle(id wire.ID, q *pendingQuestion, answer func()) bool {
	if !c.answers(id, q) {
		return false
	}
	answer()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answering--
	return true
}

// answers removes a question, and counts its answer as being sent if it is still wanted.
func (c *liveConn) answers(id wire.ID, q *pendingQuestion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asks, string(id))
	if !q.retracted {
		c.answering++
	}
	return !q.retracted
}

// retract ends the question that a notifications/cancelled of the server names.
func (c *liveConn) retract(params []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.asks[string(rawjson.Get(params, "requestId"))]; q != nil {
		q.retracted = true
		q.cancel()
	}
}

// withdrawn reports whether the server has retracted a question.
func (c *liveConn) withdrawn(q *pendingQuestion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return q.retracted
}

// running is a call in flight whose server may ask questions.
type running struct {
	asked string          // method and name, as the key of askers
	x     *front.Exchange // of a session that shares the connection
	call  inFlight        // of a modern client
}

// inFlight is a call in flight of a modern client.
type inFlight interface {
	ask(upstream.Event)
	waits() bool // for an answer of its client
}

// begins and ends keep the set of calls in flight whose server may ask, to find the call of a
// question that does not name it.
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

// candidates returns the calls of modern clients that can have asked a question: those that
// wait for no answer of their client, or all if each of them waits.
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
