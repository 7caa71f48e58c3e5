package relay

import (
	"context"
	"errors"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// askTime is how long a person may take to answer a server's question.
const askTime = 10 * time.Minute

// asked serves a request of a legacy server to its client. x is the exchange
// whose call it came with, or nil. It returns at once; the server is answered
// once, unless it cancels the request.
func (l *link) asked(c *liveConn, x *front.Exchange, e upstream.Event) {
	ctx, cancel := context.WithTimeout(l.ctx, askTime)
	q := c.note(e.ID, question.OpenQuestions, cancel)
	if q == nil {
		cancel()
		l.r.log.Warn("too many questions of a server at once, or two under one id", "server", l.b.Name)
		go l.reply(c, e.ID, question.Refusal(e.Method))
		return
	}
	go func() {
		defer cancel()
		go func() { // nobody waits for the answer once the connection is gone
			select {
			case <-c.conn.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
		reply := l.answer(ctx, x, e)
		if c.settle(e.ID, q) && c.alive() {
			l.reply(c, e.ID, reply)
		}
	}()
}

func (l *link) reply(c *liveConn, id wire.ID, reply upstream.Reply) {
	ctx, cancel := context.WithTimeout(l.ctx, sideTime)
	defer cancel()
	if err := c.conn.Answer(ctx, id, l.scanAnswer(reply)); err != nil {
		l.r.log.Debug("answer to server not delivered", "server", l.b.Name, "err", err)
	}
}

// answer asks the client, if it may be asked.
func (l *link) answer(ctx context.Context, x *front.Exchange, e upstream.Event) upstream.Reply {
	who, session := l.askedOf(x)
	to := question.Client{X: front.Exchange{Who: who, Session: session, Confirmed: session.Confirmed()}}
	params := e.Params
	if !e.Plain && wire.HoldsQuestions(params) {
		var err error
		if params, err = l.embedded(to, params); err != nil {
			return question.Refusal(e.Method)
		}
	}
	if session != nil {
		to.Caps = wire.Get(session.Init, "capabilities")
	}
	reply, err := l.pose(ctx, x, to, e.Method, params)
	switch {
	case errors.Is(err, failure.ErrUnanswered) && e.Method == policy.AskElicitation:
		return question.Cancelled
	case errors.Is(err, failure.ErrUnanswered):
		return question.NotAskable
	case err != nil:
		return question.Refusal(e.Method)
	}
	return reply
}

// pose decides on one question of a server, puts it to the client's session, and
// returns the client's answer as the server may have it. An error that wraps
// failure.ErrUnanswered means that no answer came. Any other error means that the client
// must not be asked, or that its answer must not leave.
func (l *link) pose(ctx context.Context, x *front.Exchange, to question.Client, method string, params []byte) (upstream.Reply, error) {
	params, pass, err := l.question(to, method, params)
	if err != nil {
		return upstream.Reply{}, err
	}
	if to.X.Session == nil {
		pass.Leave("unsupported", 0)
		return upstream.Reply{}, failure.ErrAsksTooMuch
	}
	if to.X.Session.Server == "" {
		params = naming.Server(l.b.Name).Question(params)
	}
	reply, err := put(ctx, x, to.X.Session, method, params)
	if err != nil {
		pass.Leave("unanswered", 0)
		return upstream.Reply{}, errors.Join(failure.ErrUnanswered, err)
	}
	out, ok := l.r.leavingAnswer(pass.Act(), reply)
	if !ok {
		pass.Leave("blocked", 0)
		return upstream.Reply{}, failure.ErrAsksTooMuch
	}
	pass.Leave("ok", int64(len(reply.Result)))
	return out, nil
}

// put asks on the stream of the exchange it came with, else on the session's
// own; one stream only (2025-11-25 Transports, "Multiple Connections").
func put(ctx context.Context, x *front.Exchange, s *front.Session, method string, params []byte) (front.Reply, error) {
	if x != nil {
		return x.Ask(ctx, method, params)
	}
	return s.Ask(ctx, method, params)
}

// askedOf returns the client that a question is for. On a pooled connection without
// capabilities there is none. Where sessions with the same capabilities share one, it
// is the session of the call that the question came with, or the only session.
func (l *link) askedOf(x *front.Exchange) (*principal.Principal, *front.Session) {
	switch {
	case l.private():
		return l.session.Owner(), l.session
	case l.sharedBySessions():
		if s := l.sessionOf(x); s != nil {
			return s.Owner(), s
		}
		return l.who, nil
	case x != nil:
		return x.Who, nil
	}
	return l.who, nil
}
