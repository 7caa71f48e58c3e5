package question

import (
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Embedded rewrites the questions inside a part of a message with put, which decides on,
// records and labels one question.
func Embedded(to Client, raw []byte, put func(to Client, method string, params []byte) ([]byte, gate.Pass, error)) ([]byte, error) {
	to.Inside = true
	w := questionWalk{put: put, to: to}
	return w.value(raw)
}

// questionWalk rewrites the questions in one part of a message.
type questionWalk struct {
	put func(to Client, method string, params []byte) ([]byte, gate.Pass, error)
	to  Client
	n   int // questions so far
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
	for key, value := range rawjson.Members(raw) {
		out, err := member(key, value)
		if err != nil {
			return nil, err
		}
		if !rawjson.Same(out, value) {
			edits = append(edits, rawjson.Edit{Key: key, Value: out})
		}
	}
	return rawjson.Set(raw, edits...), nil
}

// array rewrites each element.
func (w *questionWalk) array(raw []byte, element func([]byte) ([]byte, error)) ([]byte, error) {
	out, changed := []byte{'['}, false
	for e := range rawjson.Elements(raw) {
		with, err := element(e)
		if err != nil {
			return nil, err
		}
		changed = changed || !rawjson.Same(with, e)
		out = append(rawjson.AppendComma(out), with...)
	}
	if !changed {
		return raw, nil
	}
	return append(out, ']'), nil
}

// member rewrites one member. Keys that some parsers take for those of questions count as
// such.
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

// request rewrites one question with its method; a value without a method is data.
func (w *questionWalk) request(ask []byte) ([]byte, error) {
	if !HasFolded(ask, "method") {
		return w.value(ask)
	}
	method, _ := rawjson.GetString(ask, "method")
	params := rawjson.Get(ask, "params")
	out, err := w.ask(w.to, method, params)
	if err != nil {
		return nil, err
	}
	if misspelt(ask, "method") || misspelt(ask, "params") {
		return nil, failure.ErrAsksTooMuch
	}
	if rawjson.Same(out, params) {
		return ask, nil
	}
	return rawjson.Set(ask, rawjson.Edit{Key: "params", Value: out}), nil
}

// elicitation rewrites one question of an error: params that open a URL. Any other value is
// data.
func (w *questionWalk) elicitation(params []byte) ([]byte, error) {
	if !HasFolded(params, "url") && !HasFolded(params, "mode") {
		return w.value(params)
	}
	to := w.to
	if to.Caps = to.URLs; !rawjson.IsText(rawjson.Get(params, "mode"), "url") {
		to.Caps = nil // an error can only ask for a URL
	}
	return w.ask(to, policy.AskElicitation, params)
}

// ask decides, records and labels one question. Its params must be as unambiguous as those of
// a request.
func (w *questionWalk) ask(to Client, method string, params []byte) ([]byte, error) {
	if w.n++; w.n > OpenQuestions {
		return nil, failure.ErrAsksTooMuch
	}
	out, pass, err := w.put(to, method, params)
	if err != nil {
		return nil, err
	}
	if _, err := wire.Parse(rawjson.AppendRequest(nil, wire.IntID(0), method, params), wire.FromServer); err != nil {
		pass.Leave("invalid", 0)
		return nil, failure.ErrAsksTooMuch
	}
	pass.Leave("asked", int64(len(out)))
	return out, nil
}
