package relay

import (
	"context"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
)

// initialize opens a legacy session on the route of one server. The server is
// asked first, because its answer is what the client is offered.
func (r *Relay) initialize(ctx context.Context, x *front.Exchange, b *backend) front.Reply {
	pass, err := r.gate.Enter(r.act(x, b.Name, x.Method, ""))
	if err != nil {
		return r.refused(err)
	}
	c, err := r.linkFor(x, b).get(ctx)
	if err != nil {
		return r.fail(ctx, b.Name, pass, err)
	}
	result := b.greeting(c, initializeResult(c, x.Version))
	if b.Builtin != nil && b.Name == guideServer {
		result = r.greet(ctx, x, result)
	}
	pass.Leave("ok", int64(len(result)))
	return front.Reply{Result: result}
}

// sessionInit is what a session's client says to a legacy server: its own
// words, with the version that was negotiated here and without the
// capabilities that policy will not serve.
func (r *Relay) sessionInit(x *front.Exchange, b *backend) []byte {
	return sessionParams(r, x, b, x.Session.Init)
}

func sessionParams(r *Relay, x *front.Exchange, b *backend, init []byte) []byte {
	if wire.Get(init, "clientInfo") == nil {
		return defaultInit(r.info)
	}
	caps, _ := r.narrow(x, b, wire.Get(init, "capabilities"))
	if x.Server == "" && wire.Get(caps, "tasks") != nil { // they are known by ids that all servers would share
		caps = rawjson.Set(caps, rawjson.Edit{Key: "tasks"})
	}
	return rawjson.Set(init, rawjson.Edit{Key: "protocolVersion", Value: rawjson.AppendQuote(nil, x.Version)}, rawjson.Edit{Key: "capabilities", Value: caps})
}

// initializeResult is the server's own result in the client's version; of a
// modern server, its DiscoverResult put in that form, without tasks, which each era
// has in another form.
func initializeResult(c *liveConn, version string) []byte {
	v := rawjson.AppendQuote(nil, version)
	if c.era == front.Legacy {
		return rawjson.Set(c.hello, rawjson.Edit{Key: "protocolVersion", Value: v})
	}
	info := wire.GetPath(c.hello, "_meta", wire.MetaServerInfo)
	if info == nil {
		info = []byte(`{"name":"unknown","version":"unknown"}`)
	}
	edits := []rawjson.Edit{{Key: "protocolVersion", Value: v}, {Key: "capabilities", Value: capabilitiesFor(front.Legacy, c)}, {Key: "serverInfo", Value: info}}
	if text := wire.Get(c.hello, "instructions"); text != nil {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: text})
	}
	return rawjson.Set(nil, edits...)
}

func orEmpty(obj []byte) []byte {
	if obj == nil {
		return emptyResult
	}
	return obj
}

// served is what every route serves: the modern version, and by handshake the
// legacy ones.
var served = []byte(`["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]`)

// discover answers server/discover on the route of one server, with that
// server's own words.
func (r *Relay) discover(ctx context.Context, x *front.Exchange, b *backend) front.Reply {
	pass, err := r.gate.Enter(r.act(x, b.Name, x.Method, ""))
	if err != nil {
		return r.refused(err)
	}
	c, err := r.linkFor(x, b).get(ctx)
	if err != nil {
		return r.fail(ctx, b.Name, pass, err)
	}
	result := b.greeting(c, discoverResult(c))
	if b.Builtin != nil && b.Name == guideServer {
		result = r.greet(ctx, x, result)
	}
	pass.Leave("ok", int64(len(result)))
	return front.Reply{Result: result}
}

func discoverResult(c *liveConn) []byte {
	edits := []rawjson.Edit{{Key: "supportedVersions", Value: served}, {Key: "cacheScope", Value: []byte(`"private"`)}}
	if c.era == front.Modern {
		if wire.Get(c.hello, "resultType") == nil {
			edits = append(edits, rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)})
		}
		if wire.Get(c.hello, "ttlMs") == nil {
			edits = append(edits, rawjson.Edit{Key: "ttlMs", Value: []byte("0")})
		}
		return rawjson.Set(c.hello, edits...)
	}
	edits = append(edits,
		rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)},
		rawjson.Edit{Key: "ttlMs", Value: []byte("0")},
		rawjson.Edit{Key: "capabilities", Value: capabilitiesFor(front.Modern, c)})
	if text := wire.Get(c.hello, "instructions"); text != nil {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: text})
	}
	out := rawjson.Set(nil, edits...)
	if info := wire.Get(c.hello, "serverInfo"); info != nil {
		out = rawjson.SetIn(out, "_meta", rawjson.Edit{Key: wire.MetaServerInfo, Value: info})
	}
	return out
}

// capabilitiesFor are what of a server's capabilities a client of the era can use. Tasks
// are another protocol in each era.
func capabilitiesFor(era front.Era, c *liveConn) []byte {
	caps := orEmpty(wire.Get(c.hello, "capabilities"))
	switch extensions := wire.Get(caps, "extensions"); {
	case era == c.era:
		return caps
	case era == front.Modern:
		return rawjson.Set(caps, rawjson.Edit{Key: "tasks"})
	case extensions != nil:
		return rawjson.Set(caps, rawjson.Edit{Key: "extensions", Value: withoutTasks(extensions)})
	}
	return caps
}
