package relay

import (
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// questions decides on the questions in the messages of one server.
type questions struct {
	gate   *gate.Gate
	acts   *acts
	server string
	excess *excess
}

// decide decides and records one question of a server, wherever it is in a message, and
// labels it with the server's name. The caller leaves the pass once the outcome is known.
// After an error nothing of the question may reach the client.
func (q *questions) decide(to question.Client, method string, params []byte) (labelled []byte, pass gate.Pass, err error) {
	if q.excess.refuses(q.server, method) {
		return nil, pass, failure.ErrAsksTooMuch
	}
	to.X.Size = int64(len(params))
	act := q.act(to, method)
	if pass, err = q.gate.Enter(act); err != nil {
		q.excess.refused(method)
		return nil, pass, errors.Join(failure.ErrAsksTooMuch, err)
	}
	ok := question.Serves(to.Caps, method, params) && !(to.Inside && question.CapabilityOf(method) == "") && !to.MixesTasks(method)
	if ok && method == policy.AskElicitation {
		params, ok = question.Label(q.server, params)
	}
	if !ok {
		q.unsupported(pass, method)
		return nil, pass, failure.ErrAsksTooMuch
	}
	return params, pass, nil
}

// act returns the act of asking a client. The server chooses the methods that the protocol does not define, and one of
// them may be that of a request of the client: such a question has an action of its own, and the method is its name.
func (q *questions) act(to question.Client, method string) gate.Act {
	act := q.acts.of(&to.X, q.server, method, "")
	if question.CapabilityOf(method) == "" {
		act.Action, act.Name = question.Other, method
	}
	act.Kind = gate.Question
	return act
}

// unsupported ends a question that policy allows and that the client cannot be asked.
func (q *questions) unsupported(pass gate.Pass, method string) {
	q.excess.refused(method)
	pass.Leave("unsupported", 0)
}

// embedded has every question inside a part of a server's message decided, at any depth, and
// returns the part with the labels. After an error nothing of the part may reach the client.
func (q *questions) embedded(to question.Client, raw []byte) ([]byte, error) {
	return question.Embedded(to, raw, q.decide)
}

// inReply has the questions in a server's answer decided.
func (q *questions) inReply(x *front.Exchange, reply upstream.Reply) (upstream.Reply, error) {
	if reply.Plain {
		return reply, nil
	}
	if e := reply.Error; e != nil && wire.HoldsQuestions(e.Raw) {
		to := question.InCall(x)
		if x.Session != nil {
			to.URLs = rawjson.Get(x.Session.Init.Params(), "capabilities")
		}
		raw, err := q.embedded(to, e.Raw)
		return upstream.Reply{Error: &wire.Error{Code: e.Code, Message: e.Message, Data: rawjson.Get(raw, "data"), Raw: raw}}, err
	}
	if wire.HoldsQuestions(reply.Result) {
		var err error
		reply.Result, err = q.embedded(question.InCall(x), reply.Result)
		return reply, err
	}
	return reply, nil
}

// passes decides on the questions in a server's notification. False: the notification must
// not be forwarded. A message without an id whose method is no notification is a request that
// cannot be answered; it is not forwarded.
func (q *questions) passes(to func() question.Client, e *upstream.Event) bool {
	if !wire.IsNotification(e.Method) {
		return false
	}
	if e.Plain || !wire.HoldsQuestions(e.Params) {
		return true
	}
	params, err := q.embedded(to(), e.Params)
	e.Params = params
	return err == nil
}
