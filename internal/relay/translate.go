package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// errAsksTooMuch is an upstream failure: the server asked this client for
// something that it did not declare or that policy forbids.
var errAsksTooMuch = fmt.Errorf("the server asked for what the client does not offer: %w", upstream.ErrProtocol)

// outgoing makes the upstream request of an exchange: the params as they
// came, apart from what the eras and the bindings require (protocol.md 3.8).
func (r *Relay) outgoing(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target) (upstream.Request, error) {
	req := upstream.Request{Method: t.method, Params: t.params,
		ProgressToken: wire.GetPath(t.params, "_meta", "progressToken")}
	switch {
	case x.Era == front.Legacy && c.era == front.Legacy:
		return req, nil
	case x.Era == front.Legacy:
		req.Params = wire.SetIn(t.params, "_meta", l.modernMeta(x)...)
	case c.era == front.Legacy:
		req.Params = wire.SetIn(t.params, "_meta", legacyMeta...)
		req.Params = wire.Set(req.Params, wire.Edit{Key: "inputResponses"}, wire.Edit{Key: "requestState"})
	default:
		p, err := r.modernParams(x, l, t)
		if err != nil {
			return req, err
		}
		req.Params = p
	}
	if x.Era == front.Modern || c.era == front.Modern {
		return req, r.mirror(ctx, x, l, c, t, &req)
	}
	return req, nil
}

// legacyMeta removes what a legacy server would not understand and keeps the
// rest: trace context, vendor keys.
var legacyMeta = []wire.Edit{{Key: wire.MetaVersion}, {Key: wire.MetaCapabilities}, {Key: wire.MetaClientInfo}, {Key: wire.MetaLogLevel}}

// modernMeta is what a modern server needs in every request, for a legacy
// client. No capability is declared: what the server would ask has no way to
// this client yet.
func (l *link) modernMeta(x *front.Exchange) []wire.Edit {
	info := wire.Get(x.Session.Init, "clientInfo")
	if info == nil {
		info = l.r.info
	}
	edits := []wire.Edit{
		{Key: wire.MetaVersion, Value: []byte(`"` + wire.LatestModern + `"`)},
		{Key: wire.MetaCapabilities, Value: emptyResult},
		{Key: wire.MetaClientInfo, Value: info},
	}
	if level := l.r.bindingOf(x.Session).levelOf(); level != nil {
		edits = append(edits, wire.Edit{Key: wire.MetaLogLevel, Value: level})
	}
	return edits
}

// modernParams narrows the declared capabilities to what policy serves and
// opens the sealed state, between two modern ends.
func (r *Relay) modernParams(x *front.Exchange, l *link, t target) ([]byte, error) {
	p := t.params
	caps := wire.GetPath(p, "_meta", wire.MetaCapabilities)
	if narrowed, changed := r.narrow(x, l.b, caps); changed {
		p = wire.SetIn(p, "_meta", wire.Edit{Key: wire.MetaCapabilities, Value: narrowed})
	}
	if raw := wire.Get(p, "requestState"); raw != nil {
		inner, err := r.seal.openState(raw, x.Who, l.b.Name, t)
		if err != nil {
			return nil, invalid{errState}
		}
		p = wire.Set(p, wire.Edit{Key: "requestState", Value: inner})
	}
	if raw := wire.Get(p, "cursor"); raw != nil && isList(t.method) {
		inner, err := r.seal.openCursor(raw, x.Who, l.b.Name, t.method)
		if err != nil {
			return nil, invalid{errCursor}
		}
		p = wire.Set(p, wire.Edit{Key: "cursor", Value: inner})
	}
	return p, nil
}

// askOf maps a client capability to the action that policy decides.
var askOf = []struct{ capability, action string }{
	{"elicitation", policy.AskElicitation},
	{"sampling", policy.AskSampling},
	{"roots", policy.AskRoots},
}

// narrow removes the capabilities that policy will not serve: what nobody may
// ask for is not offered (protocol.md 3.9).
func (r *Relay) narrow(x *front.Exchange, b *backend, caps []byte) ([]byte, bool) {
	var edits []wire.Edit
	for _, a := range askOf {
		if wire.Get(caps, a.capability) == nil {
			continue
		}
		if !r.gate.Allows(policy.Request{Who: x.Who, Action: a.action, Server: b.Name}).Allow {
			edits = append(edits, wire.Edit{Key: a.capability})
		}
	}
	if edits == nil {
		return caps, false
	}
	return wire.Set(caps, edits...), true
}

// incoming makes the client's answer of a server's: the bytes that came,
// apart from what the eras and the bindings require.
func (r *Relay) incoming(x *front.Exchange, l *link, c *liveConn, t target, reply upstream.Reply) (upstream.Reply, error) {
	if reply.Error != nil {
		reply.Error = translateError(x, c, reply.Error)
		return reply, nil
	}
	if c.era == front.Modern {
		kind, _ := wire.GetString(reply.Result, "resultType")
		if kind == "input_required" {
			return r.inputRequired(x, l, c, t, reply)
		}
	}
	if isList(t.method) {
		reply.Result = r.filterList(x, l, c, t.method, reply.Result)
	}
	switch {
	case x.Era == front.Legacy && c.era == front.Modern:
		reply.Result = wire.Set(reply.Result, wire.Edit{Key: "resultType"}, wire.Edit{Key: "ttlMs"}, wire.Edit{Key: "cacheScope"})
	case x.Era == front.Modern:
		reply.Result = modernResult(t.method, reply.Result)
	}
	return reply, nil
}

// modernResult adds what a modern client requires and a server left out:
// resultType, and the caching hints of the methods that have them, at their
// most careful (Caching; protocol.md 3.13).
func modernResult(method string, result []byte) []byte {
	var edits []wire.Edit
	if wire.Get(result, "resultType") == nil {
		edits = append(edits, wire.Edit{Key: "resultType", Value: []byte(`"complete"`)})
	}
	if isList(method) || method == "resources/read" {
		if wire.Get(result, "ttlMs") == nil {
			edits = append(edits, wire.Edit{Key: "ttlMs", Value: []byte("0")})
		}
		if wire.Get(result, "cacheScope") == nil {
			edits = append(edits, wire.Edit{Key: "cacheScope", Value: []byte(`"private"`)})
		}
	}
	if edits == nil || len(result) == 0 || result[0] != '{' {
		return result
	}
	return wire.Set(result, edits...)
}

// translateError maps the codes that one era has and the other forbids
// (protocol.md 3.16).
func translateError(x *front.Exchange, c *liveConn, e *wire.Error) *wire.Error {
	if x.Era == front.Modern && c.era == front.Legacy && e.Code == -32002 {
		return &wire.Error{Code: front.CodeInvalidParams, Message: e.Message, Data: e.Data}
	}
	return e
}

// inputRequired passes a multi-round-trip result on: every question is
// checked against what this request declared and what policy allows, and the
// state is sealed, since the server cannot bind it to a user it never sees.
func (r *Relay) inputRequired(x *front.Exchange, l *link, c *liveConn, t target, reply upstream.Reply) (upstream.Reply, error) {
	if x.Era != front.Modern || !mayAsk(t.method) {
		return reply, errAsksTooMuch
	}
	result := reply.Result
	asks := wire.Get(result, "inputRequests")
	labelled, err := r.checkAsks(x, l, asks)
	if err != nil {
		return reply, err
	}
	if labelled != nil {
		result = wire.Set(result, wire.Edit{Key: "inputRequests", Value: labelled})
	}
	if state := wire.Get(result, "requestState"); state != nil {
		sealed, err := r.seal.sealState(state, x.Who, l.b.Name, t)
		if err != nil {
			return reply, fmt.Errorf("sealing requestState: %w", err)
		}
		result = wire.Set(result, wire.Edit{Key: "requestState", Value: sealed})
	}
	reply.Result = result
	return reply, nil
}

// mayAsk lists the methods that may answer input_required (MRTR, "Supported
// Requests").
func mayAsk(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// checkAsks decides and records each question and labels elicitations with
// the server's name. It returns nil when nothing had to change.
func (r *Relay) checkAsks(x *front.Exchange, l *link, asks []byte) ([]byte, error) {
	declared := wire.GetPath(x.Params, "_meta", wire.MetaCapabilities)
	var edits []wire.Edit
	for key, ask := range wire.Members(asks) {
		method, _ := wire.GetString(ask, "method")
		if capability := capabilityOf(method); capability == "" || wire.Get(declared, capability) == nil {
			return nil, errAsksTooMuch
		}
		pass, err := r.gate.Enter(r.act(x, l.b.Name, method, ""))
		if err != nil {
			return nil, errors.Join(errAsksTooMuch, err)
		}
		r.gate.Leave(pass, "asked", int64(len(ask)))
		if method == policy.AskElicitation {
			params := label(l.b.Name, wire.Get(ask, "params"))
			edits = append(edits, wire.Edit{Key: key, Value: wire.Set(ask, wire.Edit{Key: "params", Value: params})})
		}
	}
	if edits == nil {
		return nil, nil
	}
	return wire.Set(asks, edits...), nil
}

func capabilityOf(method string) string {
	for _, a := range askOf {
		if a.action == method {
			return a.capability
		}
	}
	return ""
}

// label puts the server's name in front of what it asks the user: clients
// show who asks, and they know only Doorward (Elicitation, "Security
// Considerations").
func label(server string, params []byte) []byte {
	msg, ok := wire.GetString(params, "message")
	if !ok {
		return params
	}
	return wire.Set(params, wire.Edit{Key: "message", Value: wire.AppendQuote(nil, "["+server+"] "+msg)})
}
