package relay

import (
	"context"
	"sync"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/wire"
)

// aggregate serves a request on /mcp: every server the caller may use.
func (r *Relay) aggregate(ctx context.Context, x *front.Exchange) front.Reply {
	switch x.Method {
	case "ping":
		return front.Reply{Result: emptyResult}
	case "initialize":
		return r.initializeAll(ctx, x)
	case "server/discover":
		return r.discoverAll(ctx, x)
	case "subscriptions/listen":
		return r.subscribe(ctx, x, r.servers(x.Who))
	case "logging/setLevel":
		return r.setLevels(ctx, x)
	}
	if isList(x.Method) {
		return r.mergedList(ctx, x)
	}
	return r.routed(ctx, x)
}

// aggregateCapabilities are what the aggregate can carry for some server; it
// does not wait for servers to say which of them it is.
const aggregateCapabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{}`

func (r *Relay) initializeAll(ctx context.Context, x *front.Exchange) front.Reply {
	pass, err := r.gate.Enter(r.act(x, "", x.Method, ""))
	if err != nil {
		return r.refused(err)
	}
	r.bindingOf(x.Session)
	result := append([]byte(`{"protocolVersion":`), wire.AppendQuote(nil, x.Version)...)
	result = append(result, `,"capabilities":`+aggregateCapabilities+`,"logging":{}},"serverInfo":`...)
	result = r.greet(ctx, x, append(append(result, r.info...), '}'))
	r.gate.Leave(pass, "ok", int64(len(result)))
	return front.Reply{Result: result}
}

func (r *Relay) discoverAll(ctx context.Context, x *front.Exchange) front.Reply {
	pass, err := r.gate.Enter(r.act(x, "", x.Method, ""))
	if err != nil {
		return r.refused(err)
	}
	result := append([]byte(`{"supportedVersions":`), served...)
	result = append(result, `,"capabilities":`+aggregateCapabilities+`},"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"`+wire.MetaServerInfo+`":`...)
	result = r.greet(ctx, x, append(append(result, r.info...), `}}`...))
	r.gate.Leave(pass, "ok", int64(len(result)))
	return front.Reply{Result: result}
}

// setLevels passes a log level to every server of the session, now and when
// one is reached later. A server that does not answer delays nobody.
func (r *Relay) setLevels(ctx context.Context, x *front.Exchange) front.Reply {
	if x.Session == nil || severity(wire.Get(x.Params, "level")) < 0 {
		return front.Reply{Error: errParams}
	}
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	bind := r.bindingOf(x.Session)
	bind.setLevel(x.Params)
	var wg sync.WaitGroup
	with := new(gate.Charge)
	for _, h := range bind.all() {
		c := h.live.Load()
		if c == nil || c.era != front.Legacy || wire.GetPath(c.hello, "capabilities", "logging") == nil {
			continue
		}
		wg.Go(func() { r.call(ctx, x, h.b, target{method: x.Method, params: x.Params, with: with}) })
	}
	wg.Wait()
	return front.Reply{Result: emptyResult}
}

// routed serves a request whose params name a server.
func (r *Relay) routed(ctx context.Context, x *front.Exchange) front.Reply {
	server, t, missing := plainTarget(x)
	if missing == nil {
		return front.Reply{Error: errNoMethod}
	}
	b := r.table.Load().byName[server]
	if b == nil || !r.visible(x.Who, server) && !r.shut(x.Who, b) {
		return front.Reply{Error: missing}
	}
	return r.call(ctx, x, b, t)
}

// plainTarget turns the aggregate's names into one server's. missing is the
// answer when there is no such server; nil for a method that the aggregate
// does not carry.
func plainTarget(x *front.Exchange) (server string, t target, missing *wire.Error) {
	t = target{method: x.Method, params: x.Params}
	var ok bool
	switch x.Method {
	case "tools/call", "prompts/get":
		missing = errNoTool
		if x.Method == "prompts/get" {
			missing = errNoPrompt
		}
		full, _ := wire.GetString(x.Params, "name")
		if server, t.name, ok = splitName(full); ok {
			t.params = wire.Set(x.Params, wire.Edit{Key: "name", Value: wire.AppendQuote(nil, t.name)})
		}
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		missing = errNoURI
		full, _ := wire.GetString(x.Params, "uri")
		if server, t.name, ok = splitURI(full); ok {
			t.params = wire.Set(x.Params, wire.Edit{Key: "uri", Value: wire.AppendQuote(nil, t.name)})
		}
	case "completion/complete":
		return plainReference(x, t)
	}
	return server, t, missing
}

func plainReference(x *front.Exchange, t target) (string, target, *wire.Error) {
	ref := wire.Get(x.Params, "ref")
	member, split := "name", splitName
	if wire.Get(ref, "uri") != nil {
		member, split = "uri", splitURI
	}
	full, _ := wire.GetString(ref, member)
	server, name, ok := split(full)
	if ok {
		t.name = name
		t.params = wire.SetIn(x.Params, "ref", wire.Edit{Key: member, Value: wire.AppendQuote(nil, name)})
	}
	return server, t, errParams
}
