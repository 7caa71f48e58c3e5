package relay

import (
	"context"
	"time"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// askTime is how long a person may take to answer a server's question.
const askTime = 10 * time.Minute

// Answers to a server that may not ask, or whose client cannot be asked.
var (
	declined    = upstream.Reply{Result: []byte(`{"action":"decline"}`)}
	cancelled   = upstream.Reply{Result: []byte(`{"action":"cancel"}`)}
	notAskable  = upstream.Reply{Error: errNoMethod}
	emptyAnswer = upstream.Reply{Result: emptyResult}
)

// asked serves a request that a legacy server makes of its client: x is the
// exchange whose call it came with, or nil. It runs on a goroutine of its own
// and always answers the server, once.
func (l *link) asked(x *front.Exchange, e upstream.Event) {
	c := l.live.Load()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.r.closing, askTime)
	defer cancel()
	id := string(e.ID)
	l.mu.Lock()
	if l.asks == nil {
		l.asks = make(map[string]context.CancelFunc)
	}
	l.asks[id] = cancel
	l.mu.Unlock()
	reply := l.answer(ctx, x, e)
	l.mu.Lock()
	delete(l.asks, id)
	l.mu.Unlock()
	if err := c.conn.Answer(context.WithoutCancel(ctx), e.ID, reply); err != nil {
		l.r.log.Debug("answer to server not delivered", "server", l.b.Name, "err", err)
	}
}

// retract ends the question that a server no longer wants answered.
func (l *link) retract(params []byte) {
	l.mu.Lock()
	cancel := l.asks[string(wire.Get(params, "requestId"))]
	l.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// answer decides, records and asks.
func (l *link) answer(ctx context.Context, x *front.Exchange, e upstream.Event) upstream.Reply {
	if e.Method == "ping" {
		return emptyAnswer
	}
	session := l.sessionFor(x)
	if session == nil {
		return refusal(e.Method)
	}
	a := l.r.act(&front.Exchange{Who: session.Who, Session: session, Size: int64(len(e.Params))}, l.b.Name, e.Method, "")
	pass, err := l.r.gate.Enter(a)
	if err != nil {
		return refusal(e.Method)
	}
	if name := capabilityOf(e.Method); name != "" && wire.GetPath(session.Init, "capabilities", name) == nil {
		l.r.gate.Leave(pass, "unsupported", 0)
		return refusal(e.Method)
	}
	params := e.Params
	if e.Method == policy.AskElicitation {
		params = label(l.b.Name, params)
	}
	reply, err := put(ctx, x, session, e.Method, params)
	if err != nil {
		l.r.gate.Leave(pass, "unanswered", 0)
		if e.Method == policy.AskElicitation {
			return cancelled
		}
		return notAskable
	}
	l.r.gate.Leave(pass, "ok", int64(len(reply.Result)))
	return upstream.Reply{Result: reply.Result, Error: reply.Error}
}

// put asks on the stream of the exchange it came with, else on the session's
// own; one stream only (2025-11-25 Transports, "Multiple Connections").
func put(ctx context.Context, x *front.Exchange, s *front.Session, method string, params []byte) (front.Reply, error) {
	if x != nil {
		return x.Ask(ctx, method, params)
	}
	return s.Ask(ctx, method, params)
}

// sessionFor is the one session that a question can belong to: its call's, or
// that of a connection which serves a single session.
func (l *link) sessionFor(x *front.Exchange) *front.Session {
	if x != nil {
		return x.Session
	}
	if l.shared {
		return nil
	}
	return l.hub.onlySession()
}

func refusal(method string) upstream.Reply {
	if method == policy.AskElicitation {
		return declined
	}
	return notAskable
}
