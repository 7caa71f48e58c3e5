package relay

import (
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// embedded passes every question inside a part of a server's message to question,
// at any depth, and returns the part with the labels. After an error nothing of
// the part may reach the client.
func (l *link) embedded(to asked, raw []byte) ([]byte, error) {
	to.inside = true
	w := questionWalk{link: l, to: to}
	return w.value(raw)
}

// asking has the questions in a server's answer looked at.
func (l *link) asking(x *front.Exchange, reply upstream.Reply) (upstream.Reply, error) {
	if reply.Plain {
		return reply, nil
	}
	if e := reply.Error; e != nil && wire.HoldsQuestions(e.Raw) {
		to := inCall(x)
		if x.Session != nil {
			to.urls = wire.Get(x.Session.Init, "capabilities")
		}
		raw, err := l.embedded(to, e.Raw)
		return upstream.Reply{Error: &wire.Error{Code: e.Code, Message: e.Message, Data: wire.Get(raw, "data"), Raw: raw}}, err
	}
	if wire.HoldsQuestions(reply.Result) {
		var err error
		reply.Result, err = l.embedded(inCall(x), reply.Result)
		return reply, err
	}
	return reply, nil
}

// passes decides on the questions in a server's notification. False: the
// notification must not be forwarded. A message without an id whose method is not
// a notification is a request that could never be answered.
func (l *link) passes(to func() asked, e *upstream.Event) bool {
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

// inCall returns the client of a call, for questions in the server's messages to
// it. A legacy client cannot be asked that way.
func inCall(x *front.Exchange) asked {
	if x.Era == front.Modern {
		caps := wire.GetPath(x.Params, "_meta", wire.MetaCapabilities)
		return asked{x: *x, caps: caps, urls: caps}
	}
	return asked{x: *x}
}

// outsideCalls returns the owner of a connection, for the server's unsolicited
// messages. They have no answer, so they can contain no question.
func (l *link) outsideCalls() asked {
	who, session := l.askedOf(nil)
	return asked{x: front.Exchange{Who: who, Session: session}}
}

// questionWalk rewrites one part of a message.
type questionWalk struct {
	link *link
	to   asked
	n    int // questions so far
}

func (w *questionWalk) value(raw []byte) ([]byte, error) {
	switch {
	case len(raw) == 0:
	case raw[0] == '{':
		return w.object(raw, w.member)
	case raw[0] == '[':
		return w.array(raw, w.value)
	}
	return raw, nil
}

// object rewrites each member.
func (w *questionWalk) object(raw []byte, member func(string, []byte) ([]byte, error)) ([]byte, error) {
	var edits []rawjson.Edit
	for key, value := range wire.Members(raw) {
		out, err := member(key, value)
		if err != nil {
			return nil, err
		}
		if !same(out, value) {
			edits = append(edits, rawjson.Edit{Key: key, Value: out})
		}
	}
	return rawjson.Set(raw, edits...), nil
}

// array rewrites each element.
func (w *questionWalk) array(raw []byte, element func([]byte) ([]byte, error)) ([]byte, error) {
	out, changed := []byte{'['}, false
	for e := range wire.Elements(raw) {
		with, err := element(e)
		if err != nil {
			return nil, err
		}
		changed = changed || !same(with, e)
		out = append(comma(out), with...)
	}
	if !changed {
		return raw, nil
	}
	return append(out, ']'), nil
}

// member rewrites one member. Keys that some reader takes for those of questions
// count as such.
func (w *questionWalk) member(key string, value []byte) ([]byte, error) {
	isArray := len(value) > 0 && value[0] == '['
	switch {
	case wire.Resembles(key, wire.Elicitations) && isArray:
		return w.array(value, w.elicitation)
	case wire.Resembles(key, wire.InputRequests) && isArray:
		return w.array(value, w.request)
	case wire.Resembles(key, wire.InputRequests):
		return w.object(value, func(_ string, ask []byte) ([]byte, error) { return w.request(ask) })
	}
	return w.value(value)
}

// request is one question with its method; without one it is data.
func (w *questionWalk) request(ask []byte) ([]byte, error) {
	if !hasFolded(ask, "method") {
		return w.value(ask)
	}
	method, _ := wire.GetString(ask, "method")
	params := wire.Get(ask, "params")
	out, err := w.ask(w.to, method, params)
	if err != nil {
		return nil, err
	}
	if misspelt(ask, "method") || misspelt(ask, "params") {
		return nil, errAsksTooMuch
	}
	if same(out, params) {
		return ask, nil
	}
	return rawjson.Set(ask, rawjson.Edit{Key: "params", Value: out}), nil
}

// elicitation is one question of an error: params that open a URL. Anything else
// is data.
func (w *questionWalk) elicitation(params []byte) ([]byte, error) {
	if !hasFolded(params, "url") && !hasFolded(params, "mode") {
		return w.value(params)
	}
	to := w.to
	if to.caps = to.urls; !isText(wire.Get(params, "mode"), "url") {
		to.caps = nil // here it is nothing else
	}
	return w.ask(to, policy.AskElicitation, params)
}

// ask decides, records and labels one question. Its params must have one reading,
// as those of a request.
func (w *questionWalk) ask(to asked, method string, params []byte) ([]byte, error) {
	if w.n++; w.n > openQuestions {
		return nil, errAsksTooMuch
	}
	out, pass, err := w.link.question(to, method, params)
	if err != nil {
		return nil, err
	}
	if _, err := wire.Parse(rawjson.AppendRequest(nil, wire.IntID(0), method, params), wire.FromServer); err != nil {
		pass.Leave("invalid", 0)
		return nil, errAsksTooMuch
	}
	pass.Leave("asked", int64(len(out)))
	return out, nil
}

// hasFolded reports a member of that name, whatever its case.
func hasFolded(obj []byte, name string) bool {
	for key := range wire.Members(obj) {
		if strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// misspelt reports a member of that name in another case.
func misspelt(obj []byte, name string) bool {
	for key := range wire.Members(obj) {
		if key != name && strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}
