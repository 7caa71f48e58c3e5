package relay

import (
	"context"
	"errors"
	"strings"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/wire"
)

// Guide tells callers how to work here, and notices what of that leaves again.
// An act says who calls and which instruction session it bears.
type Guide interface {
	// Greeting is what a client may show its model before the first call, empty
	// for nothing; less is empty, or why it is not everything.
	Greeting(ctx context.Context, a gate.Act) (text, less string)
	// Refuses is why a call is refused to a caller without full guidance; empty:
	// it is not. The server that gives the guidance is never asked about.
	Refuses(a gate.Act) (reason string)
	// Seen hears that somebody begins to listen, so that it can be told to him
	// when what he may read is another.
	Seen(a gate.Act)
	// Outgoing looks at the params of a request on its way to a server, and
	// records what it finds. blocked: it may not go on.
	Outgoing(a gate.Act, params []byte) (out []byte, blocked bool)
}

// unguided is a guide with nothing to say.
type unguided struct{}

func (unguided) Greeting(context.Context, gate.Act) (string, string) { return "", "" }
func (unguided) Refuses(gate.Act) string                             { return "" }
func (unguided) Seen(gate.Act)                                       {}
func (unguided) Outgoing(_ gate.Act, params []byte) ([]byte, bool)   { return params, false }

// guideServer is the server that gives the guidance.
const guideServer = "instructions"

// ruleGuidance refuses calls of whom the guidance does not reach.
const ruleGuidance = "instructions.fail_closed"

// ruleLeak holds back what carries a protected text's mark.
const ruleLeak = "instructions.canary"

// maxGreeting is how much of a server's instructions clients show (Claude Code
// cuts at 2,048 characters).
const maxGreeting = 2048

// greet puts the greeting into an InitializeResult or a DiscoverResult of the
// aggregate, or of the server that gives the guidance.
func (r *Relay) greet(ctx context.Context, x *front.Exchange, result []byte) []byte {
	text, less := r.guide.Greeting(ctx, r.act(x, x.Server, x.Method, ""))
	if text == "" {
		return result
	}
	if x.Server == "" {
		text = r.withServers(x, text)
	}
	result = wire.Set(result, wire.Edit{Key: "instructions", Value: wire.AppendQuote(nil, text)})
	if less != "" {
		result = wire.SetIn(result, "_meta", wire.Edit{Key: "doorward/degraded", Value: []byte("true")})
	}
	return result
}

// withServers adds, as far as there is room, what the servers say whose
// connection of this caller is open: nothing waits for one to start.
func (r *Relay) withServers(x *front.Exchange, text string) string {
	for _, b := range r.servers(x.Who) {
		own, ok := r.saidBy(x, b)
		if !ok {
			continue
		}
		if part := "\n\n" + b.Name + ": " + own; len(text)+len(part) <= maxGreeting {
			text += part
		}
	}
	return text
}

// saidBy are the instructions of one server, as they may be shown to the
// caller, from a connection that is the caller's own or its principal's.
func (r *Relay) saidBy(x *front.Exchange, b *backend) (string, bool) {
	if b.Builtin != nil || b.Instances == "shared" {
		return "", false
	}
	for _, era := range []front.Era{front.Modern, front.Legacy} {
		c := b.openFor(x.Who, era)
		if c == nil {
			continue
		}
		own, ok := wire.GetString(b.greeting(c, initializeResult(c, wire.LatestLegacy)), "instructions")
		own = strings.TrimSpace(own)
		return own, ok && own != ""
	}
	return "", false
}

// unguidedCall refuses a call whose caller the guidance does not reach, where
// the operator wants that. nil: it goes on.
func (r *Relay) unguidedCall(x *front.Exchange, b *backend, t target) *front.Reply {
	if t.method != "tools/call" || b.Name == guideServer {
		return nil
	}
	act := r.act(x, b.Name, t.method, t.name)
	reason := r.guide.Refuses(act)
	if reason == "" {
		return nil
	}
	reply := r.refused(r.gate.Deny(act, ruleGuidance))
	if e := reply.Error; e != nil && e.Code == gate.CodeDenied {
		e.Message = "Refused until restricted guidance is available"
		e.Data = wire.Set(e.Data, wire.Edit{Key: "reason", Value: wire.AppendQuote(nil, reason)})
	}
	return &reply
}

// errLeak ends a call whose params may not leave.
var errLeak = &contentError{ruleLeak}

// leaving has the params of a request looked at before they go to a server.
// Headers that repeat a parameter would still carry what was cut, so such a
// request is held back.
func (r *Relay) leaving(x *front.Exchange, b *backend, t target) (target, error) {
	switch t.method {
	case "tools/call", "prompts/get", "completion/complete":
	default:
		return t, nil
	}
	act := r.act(x, b.Name, t.method, t.name)
	out, blocked := r.guide.Outgoing(act, t.params)
	if blocked {
		return t, errLeak
	}
	if len(out) == len(t.params) && (len(out) == 0 || &out[0] == &t.params[0]) {
		return t, nil
	}
	for name, values := range x.Header {
		if !strings.HasPrefix(name, "Mcp-Param-") {
			continue
		}
		for _, v := range values {
			if text, err := wire.DecodeHeader(v); err != nil || r.cutOf(act, text) {
				return t, errLeak
			}
		}
	}
	t.params = out
	return t, nil
}

// cutOf reports whether a header's text holds what was cut from the params.
func (r *Relay) cutOf(act gate.Act, text string) bool {
	raw := wire.AppendQuote(nil, text)
	out, blocked := r.guide.Outgoing(act, raw)
	return blocked || string(out) != string(raw)
}

// leaked answers a call of a built-in server that was held back; nil: that is
// not why it failed.
func (r *Relay) leaked(pass gate.Pass, err error) *front.Reply {
	var content *contentError
	if !errors.As(err, &content) {
		return nil
	}
	ref, err := r.gate.Turn(pass, content.rule)
	if err != nil {
		return &front.Reply{Error: r.local(gate.CodeUnavailable, "Unavailable: the act cannot be recorded", 0, err), RetryAfter: 5}
	}
	return &front.Reply{Error: r.local(gate.CodeDenied, blockedText, ref, nil)}
}
