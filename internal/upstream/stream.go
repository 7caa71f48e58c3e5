package upstream

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// sideLimit bounds the messages that a connection sends by itself: cancellations, answers to
// pings, the end of a session.
const sideLimit = 10 * time.Second

// cancelReason is the reason that servers get for every cancellation. The client's own reason
// is not forwarded.
const cancelReason = "cancelled by the client"

// stream is the common part of stdio and HTTP+SSE: messages are sent one by one through
// carry, and all messages of the server come on one stream, which one goroutine reads for the
// intake.
type stream struct {
	srv    *Server
	modern atomic.Bool // changes while a dial finds out the era
	batch  atomic.Bool // arrays are messages, only in revision 2025-03-26

	// carry sends one message, which ends with a newline. begun reports that the server may
	// see it, also beside an error. carry does not keep b.
	carry func(ctx context.Context, expire <-chan time.Time, b []byte) (begun bool, err error)

	// lines takes the messages of calls that are sent together with others; nil: none.
	lines *lineQueue

	// gone is closed when the process at the other end has ended, although its pipe may still
	// be open; onEnd then makes the reader finish. nil if the end of the stream is the end of
	// the process.
	gone  <-chan struct{}
	onEnd func()

	pending pending
	hold    hold
	events  outlet // to the owner of the connection
	own     outlet // answers what the server asks of the connection itself
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

// keepBuffer is the largest buffer that is kept for later messages, in bytes.
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

// silence returns the limit of a call's silence. A subscription has none: it is silent while
// nothing changes, and the stream that it shares ends with its server.
func (s *stream) silence(method string) time.Duration {
	if method == methodListen {
		return 0
	}
	return s.srv.def.silence(method)
}

// run makes the call c and owns its end.
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
			c.resetIdle()
		}
		if finished {
			return c.reply, c.err
		}
		select {
		case <-c.wake:
		case <-gone:
			gone = nil
			s.onEnd()
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
	line := endLine(buf)
	if s.lines.add(c.id, line) {
		return true, nil
	}
	return s.carry(ctx, c.expire, line)
}

// abandon ends a call that its caller gives up. If the answer has just come, it returns the
// answer.
func (s *stream) abandon(c *call, r *Request, begun bool, err error) (Reply, error) {
	mine := s.pending.giveUp(c.id, time.Now())
	s.refuseLeft(c)
	if mine == nil {
		awaitDone(c)
		if c.err == nil {
			return c.reply, nil
		}
		return Reply{}, err
	}
	c.done.Store(true)
	switch {
	case !begun, s.lines.withdraw(c.id):
		s.pending.take(c.id) // the server does not know of it
	case r.Method == methodInitialize:
	case c.listen: // the next listen relies on the server knowing that this one has ended
		s.sendCancelled(c.id)
	default:
		go s.sendCancelled(c.id)
	}
	return Reply{}, err
}

// refuseLeft refuses the questions that still wait for a call whose caller has left.
func (s *stream) refuseLeft(c *call) {
	for _, ev := range s.pending.collect(c) {
		if ev.ID != nil {
			s.answerLater(ev)
		}
	}
}

// leave releases the call, even if its receiver panicked.
func (s *stream) leave(c *call) {
	if !c.done.Load() {
		if mine, _ := s.pending.take(c.id); mine == nil {
			awaitDone(c)
		}
	}
	c.release()
}

// awaitDone waits until the reader that has taken the call finishes it.
func awaitDone(c *call) {
	for !c.done.Load() {
		<-c.wake
	}
}

// sendCancelled tells the server that a call is cancelled. Except for subscriptions it runs
// on a goroutine of its own, because the server may be slow to read and the caller does not
// wait for that.
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
		return newFault(ErrProtocol, "the modern era has no answers of clients")
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

// Listen implements Conn. It does nothing, because the one stream carries all messages.
func (s *stream) Listen() {}

// Done implements Conn.
func (s *stream) Done() <-chan struct{} { return s.done }

// Err implements Conn.
func (s *stream) Err() error { return s.pending.ended() }

// fail marks the connection as over and ends all calls. The first reason is kept; first
// reports whether this was the first. Done is closed before any call gets the error, so that
// its caller finds the connection closed.
func (s *stream) fail(end error) (first bool) {
	broken, first := s.pending.stop(end, s.done)
	if !first {
		return false
	}
	s.events.close()
	s.own.close()
	for id, c := range broken {
		if s.lines.withdraw(id) {
			c.finish(Reply{}, unsent(end))
		} else {
			c.finish(Reply{}, end)
		}
	}
	return true
}

// answerLater has a question answered by the connection itself. The id is copied, because the
// message that it is a part of may be large.
func (s *stream) answerLater(ev Event) {
	s.hold.answered(string(ev.ID))
	ev.Params, ev.ID = nil, bytes.Clone(ev.ID)
	if !s.own.push(ev) {
		s.srv.counts.dropped.Add(1)
	}
}

// answerOwn answers what a server asks of the connection itself.
func (s *stream) answerOwn(ev Event) {
	ctx, cancel := context.WithTimeout(context.Background(), sideLimit)
	defer cancel()
	if err := s.Answer(ctx, ev.ID, ownAnswer(ev)); err != nil {
		s.srv.log.Debug("answer not sent", slog.Any("error", err))
	}
}

// ownAnswer answers a ping, and refuses a question that could not be delivered.
func ownAnswer(ev Event) Reply {
	if ev.Method == methodPing {
		return Reply{Result: []byte(`{}`)}
	}
	return Reply{Error: &wire.Error{Code: -32601, Message: "Method not found"}}
}
