package relay

import (
	"context"
	"strings"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// aggregate serves a request on /mcp: every server the caller may use.
func (r *Relay) aggregate(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	switch x.Method {
	case "ping":
		return front.Reply{Result: rawjson.Empty}
	case "initialize":
		return r.initializeAll(ctx, x)
	case "server/discover":
		return r.discoverAll(ctx, x)
	case "subscriptions/listen":
		return r.subscribe(ctx, x, r.sight.servers(x.Who))
	case "logging/setLevel":
		return r.setLevels(ctx, x, asked)
	}
	if strings.HasSuffix(x.Method, "/list") {
		return r.mergedList(ctx, x, asked)
	}
	return r.routed(ctx, x, asked)
}

// aggregateCapabilities are what the aggregate can carry for some server; it does not
// wait for servers to say which of them it is.
var aggregateCapabilities = []byte(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{}}`)

// capabilities are those and, of the servers that have been connected, the extensions
// and the tasks of the client's era.
func (r *Relay) capabilities(x *front.Exchange) []byte {
	var extensions []byte
	out := aggregateCapabilities
	for _, b := range r.sight.servers(x.Who) {
		c := b.greeted.Load()
		if c == nil {
			continue
		}
		caps := era.Capabilities(x.Era, c.era, c.hello)
		for name, value := range wire.Members(wire.Get(caps, "extensions")) {
			if wire.Get(extensions, name) == nil {
				extensions = rawjson.Set(extensions, rawjson.Edit{Key: name, Value: value})
			}
		}
		if tasks := wire.Get(caps, "tasks"); tasks != nil && wire.Get(out, "tasks") == nil {
			out = rawjson.Set(out, rawjson.Edit{Key: "tasks", Value: tasks})
		}
	}
	if extensions == nil {
		return out
	}
	return rawjson.Set(out, rawjson.Edit{Key: "extensions", Value: extensions})
}

func (r *Relay) initializeAll(ctx context.Context, x *front.Exchange) front.Reply {
	pass, err := r.watch.traces().decide(ctx, r.gate, r.acts.of(x, "", x.Method, ""))
	if err != nil {
		return r.failures.refused(err)
	}
	r.bindingOf(x.Session).subscribeAgain(x)
	result := append([]byte(`{"protocolVersion":`), rawjson.AppendQuote(nil, x.Version)...)
	result = append(append(result, `,"capabilities":`...), r.capabilities(x)...)
	result = append(result, `,"serverInfo":`...)
	result = r.greet(ctx, x, append(append(result, r.info...), '}'))
	pass.Leave("ok", int64(len(result)))
	return front.Reply{Result: result}
}

func (r *Relay) discoverAll(ctx context.Context, x *front.Exchange) front.Reply {
	pass, err := r.watch.traces().decide(ctx, r.gate, r.acts.of(x, "", x.Method, ""))
	if err != nil {
		return r.failures.refused(err)
	}
	result := append([]byte(`{"supportedVersions":`), era.Served...)
	result = append(append(result, `,"capabilities":`...), r.capabilities(x)...)
	result = append(result, `,"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"`+wire.MetaServerInfo+`":`...)
	result = r.greet(ctx, x, append(append(result, r.info...), `}}`...))
	pass.Leave("ok", int64(len(result)))
	return front.Reply{Result: result}
}

// setLevels passes a log level to every server of the session, now and when a
// server is reached later. A server that does not answer does not delay the
// others.
func (r *Relay) setLevels(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	if x.Session == nil || era.Severity(wire.Get(x.Params, "level")) < 0 {
		return front.Reply{Error: failure.Params}
	}
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	bind := r.bindingOf(x.Session)
	bind.setLevel(x.Params)
	var wg sync.WaitGroup
	with := new(gate.Charge)
	for _, h := range bind.all() {
		c := h.link.live.Load()
		if c == nil || c.era != front.Legacy || wire.GetPath(c.hello, "capabilities", "logging") == nil {
			continue
		}
		if t, ok := r.table.Load().aim(asked.At(h.link.b.Name)); ok {
			t.with = with
			wg.Go(func() { r.call(ctx, x, t) })
		}
	}
	wg.Wait()
	return front.Reply{Result: rawjson.Empty}
}

// routed serves a request of the aggregate whose params name a server.
func (r *Relay) routed(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	t, ok := r.table.Load().aim(asked)
	if !ok || !r.sight.visible(x.Who, t.b.Name) && !r.sight.shut(x.Who, t.b) {
		return front.Reply{Error: failure.UnknownOf(x.Method)}
	}
	if args := argsOf(t); args != nil {
		own := naming.Server(t.b.Name).Arguments(args)
		if t.Target, ok = t.With(rawjson.Set(t.Params(), rawjson.Edit{Key: "arguments", Value: own})); !ok {
			return front.Reply{Error: failure.Params}
		}
	}
	return r.call(ctx, x, t)
}
