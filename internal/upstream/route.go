package upstream

import (
	"bytes"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

// endLine makes the message one line. White space between tokens may contain line breaks of
// the client; strings in JSON contain none.
func endLine(buf *[]byte) []byte {
	b := *buf
	if bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0 {
		for i, c := range b {
			if c == '\n' || c == '\r' {
				b[i] = ' '
			}
		}
	}
	*buf = append(b, '\n')
	return *buf
}

// intake passes each message of the server to its call or to the owner of the connection. It
// belongs to the goroutine that reads.
type intake struct {
	stream  *stream
	bad     int       // invalid messages since the last good one, and since the time below
	badSize int       // bytes of all lines that were refused
	since   time.Time // when the counts began
	strayed bool      // it is logged that a program prints what is no message
}

// accept takes one message, or whatever the server sent in its place, and passes it on.
// owned: b is not used again, so its parts need not be copied. An error ends the connection.
func (in *intake) accept(b []byte, owned bool) error {
	if in.stream.batch.Load() && isArray(b) {
		return in.acceptBatch(b, owned)
	}
	m, err := wire.Parse(b, wire.FromServer)
	if err != nil {
		return in.refused(b)
	}
	in.bad, in.badSize = 0, 0
	in.route(m, owned)
	return nil
}

func (in *intake) acceptBatch(b []byte, owned bool) error {
	messages, _, err := wire.ParseBatch(b, wire.FromServer)
	if err != nil {
		return in.refused(b)
	}
	in.bad, in.badSize = 0, 0
	for _, m := range messages {
		in.route(m, owned)
	}
	return nil
}

func isArray(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '['
}

func (in *intake) route(m wire.Message, owned bool) {
	switch m.Kind {
	case wire.Response:
		in.answered(m, owned)
	case wire.Request:
		in.asked(m, owned)
	case wire.Notification:
		in.notified(m, owned)
	}
}

// answered passes a response to its call. An error without an id means that the server could
// not read a request; it goes to the call in flight if there is only one. Some servers answer
// with the id as text, which the public SDKs accept.
func (in *intake) answered(m wire.Message, owned bool) {
	id, ok := wire.ID(bytes.Trim(m.ID, `"`)).Int()
	if m.ID == nil {
		id = in.stream.pending.sole()
		ok = id != 0
	}
	if !ok {
		in.stream.srv.counts.unknown.Add(1)
		return
	}
	c, issued := in.stream.pending.take(id)
	switch {
	case c != nil:
		c.finish(keepReply(m, owned), nil)
	case issued:
		in.stream.srv.counts.late.Add(1)
	default:
		in.stream.srv.counts.unknown.Add(1)
	}
}

// asked passes a request of the server to the only call in flight, or else to the owner of
// the connection.
func (in *intake) asked(m wire.Message, owned bool) {
	if in.stream.modern.Load() {
		in.stream.srv.counts.violations.Add(1)
		return
	}
	ev := keepEvent(m, owned)
	if m.Method == methodPing {
		in.stream.answerLater(ev)
		return
	}
	in.stream.hold.asked(string(ev.ID))
	if !in.deliver(in.stream.pending.sole(), ev) {
		in.stream.answerLater(ev)
	}
}

// notified passes a notification to its call or to the connection.
func (in *intake) notified(m wire.Message, owned bool) {
	switch {
	case m.Method == methodProgress:
		in.progress(m)
	case in.stream.modern.Load() && m.Method == methodCancelled:
		in.ended(m, owned)
	default:
		if m.Method == methodCancelled {
			in.stream.hold.answered(string(rawjson.Get(m.Params, "requestId")))
		}
		id, known := in.stream.pending.callOf(m, in.stream.modern.Load())
		if !known {
			in.stream.srv.counts.stray.Add(1)
			return
		}
		ev := keepEvent(m, owned)
		if id == 0 && m.Method == methodLog && in.stream.pending.offerLogs(ev) {
			return
		}
		in.deliver(id, ev)
	}
}

// callOf returns the call that a notification belongs to, 0 for the connection. False: it
// names a subscription that is not open.
func (p *pending) callOf(m wire.Message, modern bool) (id int64, known bool) {
	if modern {
		if raw := rawjson.GetPath(m.Params, "_meta", wire.MetaSubscription); raw != nil {
			id, ok := wire.ID(raw).Int()
			return id, ok && p.has(id)
		}
	}
	if ofSession(m.Method) {
		return 0, true
	}
	return p.sole(), true
}

// deliver passes the event to the call id, or to the connection if the call does not exist or
// has no receiver. False: it was dropped, and counted.
func (in *intake) deliver(id int64, ev Event) bool {
	if id != 0 {
		switch in.stream.pending.offer(id, ev) {
		case taken:
			return true
		case crowded:
			in.stream.srv.counts.dropped.Add(1)
			if protocol.IsChange(ev.Method) {
				in.stream.events.miss()
			}
			return false
		}
	}
	if in.stream.events.push(ev) {
		return true
	}
	in.stream.srv.counts.dropped.Add(1)
	return false
}

// progress restores the client's token. Progress for a token that is not in
// flight is dropped and counted.
func (in *intake) progress(m wire.Message) {
	id, _ := wire.ID(rawjson.Get(m.Params, "progressToken")).Int()
	token := in.stream.pending.token(id)
	if token == nil {
		in.stream.srv.counts.stray.Add(1)
		return
	}
	ev := Event{Method: m.Method, Params: restoreToken(m.Params, token)}
	switch in.stream.pending.offer(id, ev) {
	case absent, deaf:
		in.stream.srv.counts.stray.Add(1)
	case crowded:
		in.stream.srv.counts.dropped.Add(1)
	}
}

func restoreToken(params, token []byte) []byte {
	return rawjson.Set(params, rawjson.Edit{Key: "progressToken", Value: token})
}

// ended handles the only cancellation that a modern server may send, that of a subscription.
// The call gets the event, and ends.
func (in *intake) ended(m wire.Message, owned bool) {
	id, _ := wire.ID(rawjson.Get(m.Params, "requestId")).Int()
	if !in.stream.pending.isListen(id) {
		in.stream.srv.counts.stray.Add(1)
		return
	}
	in.stream.pending.offer(id, keepEvent(m, owned))
	if c, _ := in.stream.pending.take(id); c != nil {
		c.finish(Reply{}, newFault(ErrLost, "the server ended the subscription"))
	}
}

func (p *pending) has(id int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[id] != nil
}

func (p *pending) isListen(id int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	return c != nil && c.listen
}

// keepReply copies a reply out of the buffer of m, unless the buffer belongs to the reply.
func keepReply(m wire.Message, owned bool) Reply {
	if owned {
		return Reply{Result: m.Result, Error: m.Error, Plain: m.Plain}
	}
	if m.Error == nil {
		return Reply{Result: bytes.Clone(m.Result), Plain: m.Plain}
	}
	e := *m.Error
	e.Data, e.Raw = bytes.Clone(e.Data), bytes.Clone(e.Raw)
	return Reply{Error: &e, Plain: m.Plain}
}

func keepEvent(m wire.Message, owned bool) Event {
	if owned {
		return Event{Method: m.Method, Params: m.Params, ID: m.ID, Plain: m.Plain}
	}
	return Event{Method: m.Method, Params: bytes.Clone(m.Params), ID: bytes.Clone(m.ID), Plain: m.Plain}
}
