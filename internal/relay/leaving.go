package relay

import (
	"context"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// Guide delivers guidance to callers, and finds protected text in messages to servers. The
// act names the caller and its delivery session.
type Guide interface {
	// Greeting returns the text that a client may show its model before the first call, empty
	// for none. less says why the text is not complete; empty: it is.
	Greeting(ctx context.Context, a gate.Act) (text, less string)
	// Refuses returns why a caller without full guidance is refused; empty: it is not. It is
	// not called for the server that delivers the guidance.
	Refuses(a gate.Act) (reason string)
	// Outgoing searches raw JSON on its way to a server, mostly the params of a request, and
	// records what it finds. If it cuts nothing, it returns the input itself. blocked: the
	// message must not be sent.
	Outgoing(a gate.Act, params []byte) (out []byte, blocked bool)
}

// unguided is a Guide without guidance.
type unguided struct{}

func (unguided) Greeting(context.Context, gate.Act) (string, string) { return "", "" }
func (unguided) Refuses(gate.Act) string                             { return "" }
func (unguided) Outgoing(_ gate.Act, params []byte) ([]byte, bool)   { return params, false }

// guideServer is the server that delivers the guidance.
const guideServer = "instructions"

// leaving decides what may be sent to a server, and which callers may call tools.
type leaving struct {
	gate     *gate.Gate
	guide    Guide
	acts     *acts
	failures *failures
}

// ruleGuidance refuses calls of callers that could not be given full guidance.
const ruleGuidance = "instructions.fail_closed"

// ruleLeak holds back messages that carry the mark of a protected text.
const ruleLeak = "instructions.canary"

// errLeak ends a call whose params must not be sent.
var errLeak = &failure.Content{Rule: ruleLeak}

// request searches all parts of a request before it goes to a server: its params, its
// Mcp-Param headers and an unknown method. A find outside the params is held back instead of
// cut: a header would still carry what was cut from the params, and the name that was decided
// must be the name that is sent.
func (v *leaving) request(x *front.Exchange, t *target) (*target, error) {
	var act gate.Act
	t.act(&act, x)
	out, ok := v.search(act, t.Params(), beside(t.Method(), x.Header)...)
	if !ok {
		return t, errLeak
	}
	if rawjson.Same(out, t.Params()) {
		return t, nil
	}
	cut := *t
	if cut.Target, ok = t.With(out); !ok {
		return t, errLeak
	}
	return &cut, nil
}

// search returns the part of params that may go to a server. False: nothing may. The texts in
// beside are searched together with params, so that a find has one record, and are never cut.
func (v *leaving) search(act gate.Act, params []byte, beside ...string) ([]byte, bool) {
	if len(beside) == 0 {
		out, blocked := v.guide.Outgoing(act, params)
		return out, !blocked
	}
	all := []byte{'['}
	for _, text := range beside {
		all = append(rawjson.AppendQuote(all, text), ',')
	}
	from := len(all)
	all = append(all, params...)
	if len(params) == 0 {
		all = append(all, "null"...)
	}
	all = append(all, ']')
	out, blocked := v.guide.Outgoing(act, all)
	switch {
	case blocked:
		return nil, false
	case rawjson.Same(out, all):
		return params, true
	case len(out) < from || string(out[:from]) != string(all[:from]):
		return nil, false
	}
	return out[from : len(out)-1], true
}

// shortestMark is the least length of a mark: a shorter method name holds none.
const shortestMark = 19

// beside returns the texts of a request that go to a server outside of the params.
func beside(method string, h http.Header) (texts []string) {
	if len(method) >= shortestMark {
		texts = append(texts, method)
	}
	for name, values := range h {
		if !strings.HasPrefix(name, paramheader.Prefix) {
			continue
		}
		texts = append(texts, name)
		for _, v := range values {
			text, err := protocol.DecodeHeader(v)
			if err != nil {
				text = v
			}
			texts = append(texts, text)
		}
	}
	return texts
}

// answer is request for a client's answer to a server's question. False: it may not go to the
// server.
func (v *leaving) answer(act gate.Act, reply front.Reply) (upstream.Reply, bool) {
	if e := reply.Error; e != nil {
		raw := e.Raw
		if raw == nil {
			raw = rawjson.Set([]byte("{}"), rawjson.Edit{Key: "message", Value: rawjson.AppendQuote(nil, e.Message)}, rawjson.Edit{Key: "data", Value: e.Data})
		}
		out, ok := v.search(act, raw)
		return upstream.Reply{Error: e}, ok && rawjson.Same(out, raw)
	}
	out, ok := v.search(act, reply.Result)
	return upstream.Reply{Result: out}, ok
}

// hello refuses an initialize whose params, which servers receive, must not be sent. nil: it
// goes on.
func (v *leaving) hello(x *front.Exchange) *front.Reply {
	if x.Method != "initialize" {
		return nil
	}
	act := v.acts.of(x, x.Server, x.Method, "")
	if out, ok := v.search(act, x.Params); ok && rawjson.Same(out, x.Params) {
		return nil
	}
	reply := v.refused(act)
	return &reply
}

// refused refuses a message of which no part was let in.
func (v *leaving) refused(act gate.Act) front.Reply {
	reply := v.failures.refused(v.gate.Refuse(act, ruleLeak, gate.CodeDenied, 0))
	if e := reply.Error; e != nil && e.Code == gate.CodeDenied {
		e.Message = failure.Blocked
	}
	reply.NeedScope = "" // no scope would allow it
	return reply
}

// declares reports whether d holds nothing that must not be sent.
func (v *leaving) declares(x *front.Exchange, b *backend, d declaration) bool {
	text := d.init([]byte("{}"))
	out, ok := v.search(v.acts.of(x, b.Name, x.Method, ""), text)
	return ok && rawjson.Same(out, text)
}

// unguided denies calls of callers that could not be given full guidance, if the operator
// requires that. nil: the call goes on.
func (v *leaving) unguided(x *front.Exchange, t *target) *front.Reply {
	if t.Method() != "tools/call" || t.b.Name == guideServer {
		return nil
	}
	var act gate.Act
	t.act(&act, x)
	reason := v.guide.Refuses(act)
	if reason == "" {
		return nil
	}
	reply := v.failures.refused(v.gate.Refuse(act, ruleGuidance, gate.CodeDenied, 0))
	if e := reply.Error; e != nil && e.Code == gate.CodeDenied {
		e.Message = "Refused until restricted guidance is available"
		e.Data = rawjson.Set(e.Data, rawjson.Edit{Key: "reason", Value: rawjson.AppendQuote(nil, reason)})
	}
	return &reply
}
