package relay

import (
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// embedded passes every question inside a part of a server's message to question,
// at any depth, and returns the part with the labels. After an error nothing of
// the part may reach the client.
func (l *link) embedded(to question.Client, raw []byte) ([]byte, error) {
	return question.Embedded(to, raw, l.question)
}

// asking has the questions in a server's answer looked at.
func (l *link) asking(x *front.Exchange, reply upstream.Reply) (upstream.Reply, error) {
	if reply.Plain {
		return reply, nil
	}
	if e := reply.Error; e != nil && wire.HoldsQuestions(e.Raw) {
		to := question.InCall(x)
		if x.Session != nil {
			to.URLs = wire.Get(x.Session.Init, "capabilities")
		}
		raw, err := l.embedded(to, e.Raw)
		return upstream.Reply{Error: &wire.Error{Code: e.Code, Message: e.Message, Data: wire.Get(raw, "data"), Raw: raw}}, err
	}
	if wire.HoldsQuestions(reply.Result) {
		var err error
		reply.Result, err = l.embedded(question.InCall(x), reply.Result)
		return reply, err
	}
	return reply, nil
}

// passes decides on the questions in a server's notification. False: the
// notification must not be forwarded. A message without an id whose method is not
// a notification is a request that could never be answered.
func (l *link) passes(to func() question.Client, e *upstream.Event) bool {
	if !wire.IsNotification(e.Method) {
		return false
	}
	if e.Plain || !wire.HoldsQuestions(e.Params) {
		return true
	}
	params, err := l.embedded(to(), e.Params)
	e.Params = params
	return err == nil
}

// outsideCalls returns the owner of a connection, for the server's unsolicited
// messages. They have no answer, so they can contain no question.
func (l *link) outsideCalls() question.Client {
	who, session := l.askedOf(nil)
	return question.Client{X: front.Exchange{Who: who, Session: session}}
}
