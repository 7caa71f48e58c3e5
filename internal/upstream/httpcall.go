package upstream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// httpCall is one request in flight over HTTP.
type httpCall struct {
	c        *httpConn
	r        *Request
	on       func(Event)
	id       int64
	place    int             // in the calls of the connection; guarded by its lock
	parent   context.Context // the caller's
	ctx      context.Context // ends with the caller's until the answer, at the limit of the call, and at Close
	cancel   context.CancelFunc
	apart    func() bool // separates ctx from the caller's
	draining bool        // cancel belongs to the goroutine that drains the stream
	idle     atomic.Bool // it was silent for too long
	timer    *time.Timer // of the limit of a legacy call; guarded by the connection's lock
	given    allowance   // extends the limit; used only by its timer
	quiet    allowance   // extends the limit of silence; used only by its timer

	lastEvent string        // id of the last event that had one
	retry     time.Duration // pause before a new attempt, as the server wants it
	resumes   int           // attempts to resume that brought nothing new
	bad       int           // refused messages

	turn   sync.Mutex // held while on is called
	beside outlet     // passes on what came on the listening stream
}

// Call implements Conn.
func (c *httpConn) Call(ctx context.Context, r *Request, on func(Event)) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, err
	}
	x := &httpCall{c: c, r: r, on: on, parent: ctx, retry: defaultRetry}
	if on != nil {
		x.beside = outlet{on: x.give, max: c.srv.def.MaxMessage}
	}
	if err := x.begin(); err != nil {
		return Reply{}, err
	}
	defer x.leave()
	body, header := x.message()
	resp, err := c.post(x.ctx, body, header)
	if err != nil {
		return Reply{}, x.failed(err)
	}
	x.bound(resp)
	reply, err := x.receive(resp)
	if err != nil {
		return Reply{}, x.failed(err)
	}
	return reply, nil
}

// begin adds the call to those that Close cancels, and starts its limit.
func (x *httpCall) begin() error {
	c := x.c
	x.id = c.ids.Add(1)
	limit := c.srv.def.callLimit(x.r.Method)
	end := x.start(limit)
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit > 0 && !c.modern {
		x.timer = time.AfterFunc(limit, func() { x.expired(end) })
	}
	if c.end != nil {
		x.apart()
		x.cancel()
		return unsent(c.end)
	}
	c.calls.add(x)
	return nil
}

// start makes the context of the call. It is bound to the caller's context only until the
// answer has arrived: afterwards the rest of the stream still has to be read, or its
// connection is lost. A modern server asks nothing while it works, so its limit is fixed.
func (x *httpCall) start(limit time.Duration) (end context.CancelCauseFunc) {
	base := context.WithoutCancel(x.parent)
	if limit > 0 && x.c.modern {
		x.ctx, x.cancel = context.WithTimeout(base, limit)
		x.apart = context.AfterFunc(x.parent, x.cancel)
		return nil
	}
	x.given, x.quiet = x.c.hold.begin(), x.c.hold.begin()
	x.ctx, end = context.WithCancelCause(base)
	x.cancel = func() { end(nil) }
	x.apart = context.AfterFunc(x.parent, x.cancel)
	return end
}

// expired ends the call at its limit, or extends it by the time that questions took.
func (x *httpCall) expired(end context.CancelCauseFunc) {
	more := x.given.more()
	if more <= 0 {
		end(context.DeadlineExceeded)
		return
	}
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	if x.ctx.Err() == nil {
		x.timer.Reset(more)
	}
}

func (x *httpCall) leave() {
	x.apart()
	x.c.mu.Lock()
	x.c.calls.remove(x)
	if x.timer != nil {
		x.timer.Stop()
	}
	x.c.mu.Unlock()
	x.beside.drain()
	if !x.draining {
		x.cancel()
	}
}

// bound limits the silence of an answer, if the call's total time does not.
func (x *httpCall) bound(resp *http.Response) {
	if d := x.c.srv.def.silence(x.r.Method); d > 0 {
		resp.Body = watch(resp.Body, d, x.fellSilent)
	}
}

// fellSilent ends a call whose stream was silent for too long, not counting the time of
// questions.
func (x *httpCall) fellSilent() time.Duration {
	if more := x.quiet.more(); more > 0 {
		return more
	}
	x.idle.Store(true)
	x.cancel()
	return 0
}

// message returns the body, and in the modern era the header that repeats it.
func (x *httpCall) message() (body []byte, header http.Header) {
	params := x.r.Params
	if x.r.ProgressToken != nil {
		params = withToken(params, x.id)
	}
	var id [20]byte
	body = make([]byte, 0, len(params)+len(x.r.Method)+80)
	body = rawjson.AppendRequest(body, appendInt(id[:0], x.id), x.r.Method, params)
	if x.c.modern {
		header = x.c.modernHeader(x.r.Method, params, x.r.Headers)
	}
	return body, header
}

// receive reads the answer to the POST.
func (x *httpCall) receive(resp *http.Response) (Reply, error) {
	if x.c.answering != nil {
		x.c.answering()
	}
	if err := x.checkSession(resp); err != nil {
		resp.Body.Close()
		return Reply{}, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return x.c.refused(resp, x.r.Method, x.id)
	}
	switch {
	case isMedia(resp, mediaJSON):
		defer resp.Body.Close()
		return x.single(resp)
	case isMedia(resp, mediaEvents):
		return x.stream(resp)
	}
	resp.Body.Close()
	return Reply{}, &fault{kind: ErrProtocol, reason: "an answer that is neither JSON nor an event stream", status: resp.StatusCode}
}

func (x *httpCall) checkSession(resp *http.Response) error {
	if x.r.Method == methodInitialize && !x.c.modern {
		if resp.StatusCode/100 != 2 {
			return nil
		}
		return x.c.adopt(resp)
	}
	return x.c.checkSession(resp)
}

// single reads an answer that is one JSON body.
func (x *httpCall) single(resp *http.Response) (Reply, error) {
	body, err := readBody(resp, x.c.srv.def.MaxMessage)
	if err != nil {
		return Reply{}, err
	}
	reply, answered, err := x.take(body)
	switch {
	case err != nil:
		return Reply{}, err
	case !answered:
		return Reply{}, newFault(ErrProtocol, "an answer to another request")
	}
	return reply, nil
}

// take reads what the server sent on behalf of this call: one message, or in revision
// 2025-03-26 several. body belongs to the call.
func (x *httpCall) take(body []byte) (reply Reply, answered bool, err error) {
	if !x.c.modern && x.c.who.Load().version == protocol.V20250326 && isArray(body) {
		messages, _, err := wire.ParseBatch(body, wire.FromServer)
		if err != nil {
			return Reply{}, false, x.garbled()
		}
		for _, m := range messages {
			if x.route(m) {
				reply, answered = keepReply(m, true), true
			}
		}
		return reply, answered, nil
	}
	m, err := wire.Parse(body, wire.FromServer)
	if err != nil {
		return Reply{}, false, x.garbled()
	}
	if x.route(m) {
		return keepReply(m, true), true, nil
	}
	return Reply{}, false, nil
}

func (x *httpCall) garbled() error {
	x.c.srv.counts.violations.Add(1)
	return newFault(ErrProtocol, "the answer is not valid JSON-RPC")
}

// route passes a message to its receiver, and reports whether it is the answer to this call.
func (x *httpCall) route(m wire.Message) (answered bool) {
	if m.Kind != wire.Response {
		x.received(m)
		return false
	}
	id, ok := m.ID.Int()
	switch {
	case m.ID == nil, ok && id == x.id:
		return true
	case ok && id > 0 && id <= x.c.ids.Load():
		x.c.srv.counts.late.Add(1)
	default:
		x.c.srv.counts.unknown.Add(1)
	}
	return false
}

// received passes on a message of the server during this call.
func (x *httpCall) received(m wire.Message) {
	counts := &x.c.srv.counts
	switch {
	case m.Kind == wire.Request && x.c.modern:
		counts.violations.Add(1)
	case m.Kind == wire.Request && m.Method == methodPing:
		x.c.answerLater(keepEvent(m, false))
	case m.Method == methodProgress:
		id, _ := wire.ID(rawjson.Get(m.Params, "progressToken")).Int()
		if id != x.id || x.r.ProgressToken == nil {
			counts.stray.Add(1)
			return
		}
		x.give(Event{Method: m.Method, Params: restoreToken(m.Params, x.r.ProgressToken)})
	default:
		x.c.noteQuestion(m)
		x.give(keepEvent(m, false))
	}
}

// noteQuestion stops the clocks for a question of the server, and restarts them when it is
// withdrawn.
func (c *httpConn) noteQuestion(m wire.Message) {
	switch {
	case m.Kind == wire.Request:
		c.hold.asked(string(m.ID))
	case m.Method == methodCancelled:
		c.hold.answered(string(rawjson.Get(m.Params, "requestId")))
	}
}

func (x *httpCall) give(ev Event) {
	if x.on == nil {
		x.c.give(ev)
		return
	}
	x.turn.Lock()
	defer x.turn.Unlock()
	x.on(ev)
}

// give passes an event to the owner of the connection. An event that cannot be delivered is
// counted, and refused if it needs an answer.
func (c *httpConn) give(ev Event) {
	if c.events.push(ev) {
		return
	}
	c.srv.counts.dropped.Add(1)
	if ev.ID != nil {
		c.answerLater(ev)
	}
}

// answerLater has a question answered by the connection itself.
func (c *httpConn) answerLater(ev Event) {
	c.hold.answered(string(ev.ID))
	ev.Params, ev.ID = nil, bytes.Clone(ev.ID)
	if !c.own.push(ev) {
		c.srv.counts.dropped.Add(1)
	}
}

// failed classifies an error of the exchange, and tells a legacy server that the call was
// given up. A modern server sees the closed stream.
func (x *httpCall) failed(err error) error {
	ended := x.ctx.Err() != nil || errors.Is(err, errFirstByte)
	err = netFault(x.parent, x.ctx, err)
	if x.idle.Load() && err == errClosed {
		err = errIdle
	}
	if ended && !x.c.modern && x.r.Method != methodInitialize && x.c.Err() == nil {
		go x.c.sendCancelled(x.id)
	}
	return err
}

func (c *httpConn) sendCancelled(id int64) {
	ctx, cancel := context.WithTimeout(c.ctx, sideLimit)
	defer cancel()
	if err := c.Notify(ctx, methodCancelled, cancelledParams(id)); err != nil {
		c.srv.log.Debug("cancellation not sent", slog.Any("error", err))
	}
}
