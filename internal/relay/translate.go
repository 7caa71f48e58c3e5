package relay

import (
	"bytes"
	"context"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// outgoing makes the upstream request of an exchange: the params as they came,
// apart from what the eras and the bindings require.
func (r *Relay) outgoing(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target) (upstream.Request, error) {
	req := upstream.Request{Method: t.Method(), Params: t.Params()}
	if l.foreignTasks(c, t.Method()) {
		return req, invalid{errNoMethod}
	}
	// A server's progress may be read while the call ends and the buffer of
	// its params is used again, so the token is a copy.
	req.ProgressToken = bytes.Clone(wire.GetPath(t.Params(), "_meta", "progressToken"))
	params, err := r.openHandles(x, l, c, t)
	if err != nil {
		return req, err
	}
	switch {
	case x.Era == front.Legacy && c.era == front.Modern:
		params = rawjson.SetIn(params, "_meta", l.modernMeta(x)...)
	case x.Era == front.Modern && c.era == front.Legacy:
		params = rawjson.SetIn(params, "_meta", legacyMeta...)
	case x.Era == front.Modern:
		if caps, changed := r.narrow(x, l.b, wire.GetPath(params, "_meta", wire.MetaCapabilities)); changed {
			params = rawjson.SetIn(params, "_meta", rawjson.Edit{Key: wire.MetaCapabilities, Value: caps})
		}
	}
	req.Params = r.watch.traced(ctx, params)
	if x.Era == front.Modern || c.era == front.Modern {
		return req, r.mirror(ctx, x, l, c, t, &req)
	}
	return req, nil
}

// openHandles gives the server its own values for those that were sealed for this
// client: the state of a question, a cursor, the id of a task. Members that have
// a meaning only between two modern ends are removed for others.
func (r *Relay) openHandles(x *front.Exchange, l *link, c *liveConn, t target) ([]byte, error) {
	p := t.Params()
	switch {
	case (mayAsk(t.Method()) || isTask(t.Method())) && misspeltHandle(p):
		return nil, invalid{errParams}
	case mayAsk(t.Method()) && x.Era == front.Modern && c.era == front.Modern:
		raw := wire.Get(p, "requestState")
		if raw == nil {
			return p, nil
		}
		inner, err := r.seal.openState(raw, x.Who, t)
		if err != nil {
			return nil, invalid{errState}
		}
		return rawjson.Set(p, rawjson.Edit{Key: "requestState", Value: inner}), nil
	case mayAsk(t.Method()) && x.Era == front.Modern && wire.Get(p, "requestState") != nil:
		return r.replay(x, t)
	case mayAsk(t.Method()) && x.Era != c.era:
		return rawjson.Set(p, rawjson.Edit{Key: "inputResponses"}, rawjson.Edit{Key: "requestState"}), nil
	case isList(t.Method()) && l.seals(c):
		raw := wire.Get(p, "cursor")
		if raw == nil {
			return p, nil
		}
		inner, err := r.seal.openCursor(raw, x.Who, l.b.Name, t.Method())
		if err != nil {
			return nil, invalid{errCursor}
		}
		return rawjson.Set(p, rawjson.Edit{Key: "cursor", Value: inner}), nil
	case isTask(t.Method()) && c.era == front.Modern:
		return r.openTask(x, l, p)
	}
	return p, nil
}

// misspeltHandle reports a member that some reader takes for a handle: a server would
// get the handle unsealed.
func misspeltHandle(params []byte) bool {
	for key := range wire.Members(params) {
		for _, handle := range []string{"requestState", "inputResponses", "taskId"} {
			if key != handle && wire.Resembles(key, handle) {
				return true
			}
		}
	}
	return false
}

// legacyMeta removes what a legacy server would not understand and keeps the
// rest: trace context, vendor keys.
var legacyMeta = []rawjson.Edit{{Key: wire.MetaVersion}, {Key: wire.MetaCapabilities}, {Key: wire.MetaClientInfo}, {Key: wire.MetaLogLevel}}

// modernMeta is what a modern server needs in every request, for a legacy client.
// It declares the capabilities of the client's session that Doorward can serve
// across the eras.
func (l *link) modernMeta(x *front.Exchange) []rawjson.Edit {
	info := wire.Get(x.Session.Init, "clientInfo")
	if info == nil {
		info = l.r.info
	}
	edits := []rawjson.Edit{
		{Key: wire.MetaVersion, Value: []byte(`"` + protocol.LatestModern + `"`)},
		{Key: wire.MetaCapabilities, Value: l.r.carried(x, l.b, wire.Get(x.Session.Init, "capabilities"))},
		{Key: wire.MetaClientInfo, Value: info},
	}
	if level := l.r.bindingOf(x.Session).levelOf(); level != nil {
		edits = append(edits, rawjson.Edit{Key: wire.MetaLogLevel, Value: level})
	}
	return edits
}

// carried is what of a client's capabilities holds across the eras: questions that
// policy allows, and extensions. Tasks have another protocol in each era, and the
// change of roots no notification in the modern one.
func (r *Relay) carried(x *front.Exchange, b *backend, caps []byte) []byte {
	caps, _ = r.narrow(x, b, caps)
	var edits []rawjson.Edit
	for _, a := range askOf {
		if value := wire.Get(caps, a.capability); len(value) > 0 && value[0] == '{' {
			edits = append(edits, rawjson.Edit{Key: a.capability, Value: rawjson.Set(value, rawjson.Edit{Key: "listChanged"})})
		}
	}
	if extensions := withoutTasks(wire.Get(caps, "extensions")); len(extensions) > len("{}") {
		edits = append(edits, rawjson.Edit{Key: "extensions", Value: extensions})
	}
	return rawjson.Set(emptyResult, edits...)
}

// tasksExtension is the extension of the modern era (SEP-2663).
const tasksExtension = "io.modelcontextprotocol/tasks"

func withoutTasks(extensions []byte) []byte {
	if len(extensions) == 0 || extensions[0] != '{' {
		return nil
	}
	return rawjson.Set(extensions, rawjson.Edit{Key: tasksExtension})
}

// narrow removes the capabilities that policy does not serve, so that a client is
// not offered what it cannot use.
func (r *Relay) narrow(x *front.Exchange, b *backend, caps []byte) ([]byte, bool) {
	var edits []rawjson.Edit
	for _, a := range askOf {
		if wire.Get(caps, a.capability) == nil {
			continue
		}
		if !r.gate.Allows(policy.Request{Who: x.Who, Action: a.action, Server: b.Name}).Allow {
			edits = append(edits, rawjson.Edit{Key: a.capability})
		}
	}
	if edits == nil {
		return caps, false
	}
	return rawjson.Set(caps, edits...), true
}

// incoming makes the client's answer of a server's: the bytes that came,
// apart from what the eras and the bindings require.
func (r *Relay) incoming(x *front.Exchange, l *link, c *liveConn, t target, reply upstream.Reply) (upstream.Reply, error) {
	reply, err := r.translated(x, l, c, t, reply)
	if err != nil || x.Server != "" {
		return reply, err
	}
	if reply.Error != nil {
		reply.Error = naming{l.b.Name}.failure(reply.Error)
	} else if !isList(t.Method()) {
		reply.Result = naming{l.b.Name}.result(t.Method(), reply.Result)
	}
	return reply, nil
}

// translated is incoming in the server's own names.
func (r *Relay) translated(x *front.Exchange, l *link, c *liveConn, t target, reply upstream.Reply) (upstream.Reply, error) {
	url := needsURL(x, c, t.Method(), reply.Error)
	reply, err := l.asking(x, reply)
	switch {
	case err != nil && url && !hasURLMode(x):
		return upstream.Reply{Error: errNeedsURL}, nil
	case err != nil:
		return reply, err
	case url:
		return r.urlRequired(x, t, reply.Error)
	case reply.Error != nil:
		reply.Error = translateError(x, c, reply.Error)
		return reply, nil
	}
	switch kind, _ := wire.GetString(reply.Result, "resultType"); {
	case x.Era == front.Legacy && c.era == front.Legacy:
	case kind == "input_required":
		return r.inputRequired(x, c, t, reply)
	case x.Era == front.Legacy && kind != "" && kind != "complete":
		return upstream.Reply{Error: errNewKind}, nil
	}
	if isList(t.Method()) {
		t.shelf.take(reply.Result)
		reply.Result = r.filterList(x, l, c, t.Method(), reply.Result)
	}
	if c.era == front.Modern {
		reply.Result = r.sealTask(x, l, t, reply.Result)
	}
	switch {
	case x.Era == front.Legacy && c.era == front.Modern:
		reply.Result = legacyResult(t.Method(), reply.Result)
	case x.Era == front.Modern:
		reply.Result = modernResult(t.Method(), reply.Result)
	}
	return reply, nil
}

// errNewKind is the answer to a legacy client for a result that its era has no form
// for. A client of that era would take it for the end of the call.
var errNewKind = &wire.Error{Code: front.CodeInternal, Message: "The server's result has a resultType that protocol revisions before 2026-07-28 cannot carry"}

// legacyResult removes what only the modern era has: the kind of a result,
// caching hints, and structured output that is no object.
func legacyResult(method string, result []byte) []byte {
	edits := []rawjson.Edit{{Key: "resultType"}}
	if hasHints(method) {
		edits = append(edits, rawjson.Edit{Key: "ttlMs"}, rawjson.Edit{Key: "cacheScope"})
	}
	switch method {
	case "tools/call":
		if out := wire.Get(result, "structuredContent"); len(out) > 0 && out[0] != '{' {
			edits = append(edits, rawjson.Edit{Key: "structuredContent"})
		}
	case "tools/list":
		edits = append(edits, rawjson.Edit{Key: "tools", Value: legacyTools(wire.Get(result, "tools"))})
	}
	return rawjson.Set(result, edits...)
}

// legacyTools drops output schemas whose root is not an object.
func legacyTools(tools []byte) []byte {
	out := []byte{'['}
	for tool := range wire.Elements(tools) {
		out = append(comma(out), legacyTool(tool)...)
	}
	return append(out, ']')
}

func legacyTool(tool []byte) []byte {
	schema := wire.Get(tool, "outputSchema")
	if kind, _ := wire.GetString(schema, "type"); schema != nil && kind != "object" {
		return rawjson.Set(tool, rawjson.Edit{Key: "outputSchema"})
	}
	return tool
}

// hasHints lists the methods whose results carry caching hints (Caching).
func hasHints(method string) bool { return isList(method) || method == "resources/read" }

// modernResult adds what a modern client requires and a server left out:
// resultType, and the caching hints of the methods that have them, at their
// most careful (Caching).
func modernResult(method string, result []byte) []byte {
	var edits []rawjson.Edit
	if wire.Get(result, "resultType") == nil {
		edits = append(edits, rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)})
	}
	if hasHints(method) {
		if wire.Get(result, "ttlMs") == nil {
			edits = append(edits, rawjson.Edit{Key: "ttlMs", Value: []byte("0")})
		}
		if wire.Get(result, "cacheScope") == nil {
			edits = append(edits, rawjson.Edit{Key: "cacheScope", Value: []byte(`"private"`)})
		}
	}
	if edits == nil || len(result) == 0 || result[0] != '{' {
		return result
	}
	return rawjson.Set(result, edits...)
}

// translateError maps the codes that one era has and the other forbids.
func translateError(x *front.Exchange, c *liveConn, e *wire.Error) *wire.Error {
	if x.Era == front.Modern && c.era == front.Legacy && e.Code == -32002 {
		return &wire.Error{Code: front.CodeInvalidParams, Message: e.Message, Data: e.Data}
	}
	return e
}
