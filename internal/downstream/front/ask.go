package front

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// ErrCannotAsk means that this client cannot be asked: it has no session, or the session has
// ended.
var ErrCannotAsk = errors.New("the client cannot be asked")

// Ask sends a server's request to the client on the stream of this exchange and waits for the
// answer. Only legacy clients can be asked: without a Session, Ask returns ErrCannotAsk.
func (x *Exchange) Ask(ctx context.Context, method string, params []byte) (Reply, error) {
	if x.Session == nil {
		return Reply{}, ErrCannotAsk
	}
	return x.Session.ask(ctx, x.stream, method, params)
}

// Ask sends a server's request to the client on the standalone stream.
func (s *Session) Ask(ctx context.Context, method string, params []byte) (Reply, error) {
	return s.ask(ctx, nil, method, params)
}

// ask sends one question under an id of its own and waits for the answer. The client may
// answer once, and only in this session.
func (s *Session) ask(ctx context.Context, on *stream, method string, params []byte) (Reply, error) {
	answer := make(chan Reply, 1)
	s.mu.Lock()
	if s.closed || len(s.asks) >= sessionAsks {
		s.mu.Unlock()
		return Reply{}, ErrCannotAsk
	}
	if s.asks == nil {
		s.asks = make(map[int64]chan Reply)
	}
	s.asked++
	n := s.asked
	s.asks[n] = answer
	s.mu.Unlock()
	defer s.forget(n)

	msg := rawjson.AppendRequest(nil, wire.IntID(n), method, params)
	if on == nil || !on.send(msg) {
		s.main.put(msg, 0)
		on = nil
	}
	select {
	case r := <-answer:
		return r, nil
	case <-s.ctx.Done():
		return Reply{}, ErrCannotAsk
	case <-ctx.Done():
		s.retract(on, n)
		return Reply{}, ctx.Err()
	}
}

// retract tells the client that a question was withdrawn.
func (s *Session) retract(on *stream, n int64) {
	params := append([]byte(`{"requestId":`), wire.IntID(n)...)
	msg := rawjson.AppendNotification(nil, "notifications/cancelled", append(params, '}'))
	if on == nil || !on.send(msg) {
		s.main.put(msg, 0)
	}
}

func (s *Session) forget(n int64) {
	s.mu.Lock()
	delete(s.asks, n)
	s.mu.Unlock()
}

// answer delivers a client's response. An unexpected or repeated response is dropped. The
// bytes are copied, because the caller's buffer is reused.
func (s *Session) answer(m *wire.Message) {
	n, ok := m.ID.Int()
	if !ok {
		return
	}
	s.mu.Lock()
	ch := s.asks[n]
	delete(s.asks, n)
	s.mu.Unlock()
	if ch == nil {
		return
	}
	r := Reply{Result: append([]byte(nil), m.Result...)}
	if m.Error != nil {
		r = Reply{Error: &wire.Error{Code: m.Error.Code, Message: m.Error.Message,
			Data: append([]byte(nil), m.Error.Data...), Raw: append([]byte(nil), m.Error.Raw...)}}
	}
	ch <- r
}
