package upstream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// sideLimit bounds what a connection sends on its own account: cancellations,
// answers to pings, the end of a session.
const sideLimit = 10 * time.Second

// cancelReason is what a server is told of every cancellation. The caller's own
// words stay here.
const cancelReason = "cancelled by the client"

// stream is what stdio and HTTP+SSE have in common: messages go out one by one
// through carry, and everything that the server says comes back on one stream,
// read by one goroutine, which gives it to the intake.
type stream struct {
	srv    *Server
	modern atomic.Bool // a dial may find out which era it is
	batch  atomic.Bool // arrays are messages: revision 2025-03-26 alone

	// carry sends one message, which ends with a newline. begun says that the
	// server may come to see it, also beside an error. b is the caller's again
	// when carry returns.
	carry func(ctx context.Context, expire <-chan time.Time, b []byte) (begun bool, err error)

	// gone is closed when the process at the other end has ended, although its pipe
	// may still be open; mourn then makes the reader finish. nil where the stream's
	// end is the end of the process.
	gone  <-chan struct{}
	mourn func()

	pending pending
	hold    hold
	events  outlet // to the owner of the connection
	own     outlet // what the connection answers itself
	intake  intake

	done chan struct{}
}

func (s *stream) init(srv *Server, modern bool, on func(Event)) {
	s.srv = srv
	s.intake.stream = s
	s.modern.Store(modern)
	s.done = make(chan struct{})
	s.pending.max = srv.def.MaxMessage
	s.events = outlet{on: on, max: srv.def.MaxMessage, held: true}
	s.own = outlet{on: s.answerOwn, max: srv.def.MaxMessage}
}

// buffers hold outgoing messages while they are sent.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keepBuffer is the largest buffer worth keeping for the next message, in bytes.
const keepBuffer = 64 << 10

func releaseBuffer(buf *[]byte) {
	if cap(*buf) <= keepBuffer {
		buffers.Put(buf)
	}
}

// Call implements Conn.
func (s *stream) Call(ctx context.Context, r *Request, on func(Event)) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, err
	}
	c := takeCall(r, on, s.srv.def.callLimit(r.Method), s.silence(r.Method))
	c.given = s.hold.begin()
	return s.run(ctx, r, c)
}

// silence is the bound on a call's silence. A subscription is silent while nothing changes, and the stream that it shares
// ends when its server does.
func (s *stream) silence(method string) time.Duration {
	if method == methodListen {
		return 0
	}
	return s.srv.def.silence(method)
}

// run makes the call c, of which it becomes the owner.
func (s *stream) run(ctx context.Context, r *Request, c *call) (Reply, error) {
	if err := s.pending.add(c); err != nil {
		c.release()
		return Reply{}, err
	}
	defer s.leave(c)
	begun, err := s.request(ctx, r, c)
	if err != nil {
		return s.abandon(c, r, begun, err)
	}
	gone := s.gone
	for {
		finished := c.done.Load()
		events := s.pending.collect(c)
		for _, ev := range events {
			c.on(ev)
		}
		if len(events) > 0 {
			c.heard()
		}
		if finished {
			return c.reply, c.err
		}
		select {
		case <-c.wake:
		case <-gone:
			gone = nil
			s.mourn()
		case <-ctx.Done():
			return s.abandon(c, r, true, ctx.Err())
		case <-c.expire:
			if c.extended() {
				continue
			}
			return s.abandon(c, r, true, c.late())
		}
	}
}

func (s *stream) request(ctx context.Context, r *Request, c *call) (begun bool, err error) {
	params := r.Params
	if r.ProgressToken != nil {
		params = withToken(params, c.id)
	}
	buf := buffers.Get().(*[]byte)
	defer releaseBuffer(buf)
	var id [20]byte
	*buf = rawjson.AppendRequest((*buf)[:0], appendInt(id[:0], c.id), r.Method, params)
	return s.carry(ctx, c.expire, endLine(buf))
}

// abandon ends a call that its caller gives up, unless the answer came in this
// very moment: that is too good to throw away.
func (s *stream) abandon(c *call, r *Request, begun bool, err error) (Reply, error) {
	if mine, _ := s.pending.take(c.id); mine == nil {
		awaitDone(c)
		if c.err == nil {
			return c.reply, nil
		}
		return Reply{}, err
	}
	c.done.Store(true)
	switch {
	case !begun, r.Method == methodInitialize:
	case c.listen: // whoever opens the next one counts on the server knowing the end of this one
		s.sendCancelled(c.id)
	default:
		go s.sendCancelled(c.id)
	}
	return Reply{}, err
}

// leave releases the call, also when its receiver panicked.
func (s *stream) leave(c *call) {
	if !c.done.Load() {
		if mine, _ := s.pending.take(c.id); mine == nil {
			awaitDone(c)
		}
	}
	c.release()
}

// awaitDone waits for a reader that has taken the call to finish it.
func awaitDone(c *call) {
	for !c.done.Load() {
		<-c.wake
	}
}

// sendCancelled runs on a goroutine of its own: the server may be slow to read,
// and a caller that gave up does not wait for that.
func (s *stream) sendCancelled(id int64) {
	ctx, cancel := context.WithTimeout(context.Background(), sideLimit)
	defer cancel()
	if err := s.Notify(ctx, methodCancelled, cancelledParams(id)); err != nil {
		s.srv.log.Debug("cancellation not sent", slog.Any("error", err))
	}
}

func cancelledParams(id int64) []byte {
	b := append([]byte(nil), `{"requestId":`...)
	b = appendInt(b, id)
	b = append(b, `,"reason":`...)
	b = rawjson.AppendQuote(b, cancelReason)
	return append(b, '}')
}

// Notify implements Conn.
func (s *stream) Notify(ctx context.Context, method string, params []byte) error {
	buf := buffers.Get().(*[]byte)
	defer releaseBuffer(buf)
	*buf = rawjson.AppendNotification((*buf)[:0], method, params)
	return s.post(ctx, buf)
}

// Answer implements Conn. In the modern era servers ask nothing.
func (s *stream) Answer(ctx context.Context, id wire.ID, r Reply) error {
	if s.modern.Load() {
		return newFault(ErrProtocol, "the modern era has no answers")
	}
	s.hold.answered(string(id))
	buf := buffers.Get().(*[]byte)
	defer releaseBuffer(buf)
	*buf = appendAnswer((*buf)[:0], id, r)
	return s.post(ctx, buf)
}

func appendAnswer(b []byte, id wire.ID, r Reply) []byte {
	if r.Error != nil {
		return rawjson.AppendError(b, id, r.Error)
	}
	return rawjson.AppendResult(b, id, r.Result)
}

// post sends a message that has no answer.
func (s *stream) post(ctx context.Context, buf *[]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if end := s.pending.ended(); end != nil {
		return unsent(end)
	}
	_, err := s.carry(ctx, nil, endLine(buf))
	return err
}

// Listen implements Conn: the one stream carries everything.
func (s *stream) Listen() {}

// Done implements Conn.
func (s *stream) Done() <-chan struct{} { return s.done }

// Err implements Conn.
func (s *stream) Err() error { return s.pending.ended() }

// fail marks the connection as over and ends all calls. The first reason is kept;
// first reports whether this one was. Done is closed before any call is told of
// the end, so that a caller that knows of the end never takes the connection for
// open.
func (s *stream) fail(end error) (first bool) {
	broken, first := s.pending.stop(end, s.done)
	if !first {
		return false
	}
	s.events.close()
	s.own.close()
	for _, c := range broken {
		c.finish(Reply{}, end)
	}
	return true
}

// answerOwn answers what a server asks of the connection itself.
func (s *stream) answerOwn(ev Event) {
	ctx, cancel := context.WithTimeout(context.Background(), sideLimit)
	defer cancel()
	if err := s.Answer(ctx, ev.ID, ownAnswer(ev)); err != nil {
		s.srv.log.Debug("answer not sent", slog.Any("error", err))
	}
}

// ownAnswer answers a ping, and refuses a question for which there was no room or
// no client to ask.
func ownAnswer(ev Event) Reply {
	if ev.Method == methodPing {
		return Reply{Result: []byte(`{}`)}
	}
	return Reply{Error: &wire.Error{Code: -32601, Message: "Method not found"}}
}
