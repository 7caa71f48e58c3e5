package relay

import (
	"context"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/trust/wire"
)

// initialize opens a legacy session on the route of one server. The server is
// asked first, because its answer is what the client is offered.
func (r *Relay) initialize(ctx context.Context, x *front.Exchange, b *backend) front.Reply {
	pass, err := r.watch.traces().decide(ctx, r.gate, r.acts.of(x, b.Name, x.Method, ""))
	if err != nil {
		return r.failures.refused(err)
	}
	c, err := r.linkFor(x, b).get(ctx)
	if err != nil {
		return r.failures.fail(ctx, b.Name, pass, err)
	}
	result := c.offers.Greeting(era.Initialized(c.era, c.hello, x.Version))
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
		return era.DefaultInit(r.info)
	}
	caps, _ := r.translation.narrow(x, b, wire.Get(init, "capabilities"))
	if x.Server == "" && wire.Get(caps, "tasks") != nil { // they are known by ids that all servers would share
		caps = rawjson.Set(caps, rawjson.Edit{Key: "tasks"})
	}
	return rawjson.Set(init, rawjson.Edit{Key: "protocolVersion", Value: rawjson.AppendQuote(nil, x.Version)}, rawjson.Edit{Key: "capabilities", Value: caps})
}

// discover answers server/discover on the route of one server, with that
// server's own words.
func (r *Relay) discover(ctx context.Context, x *front.Exchange, b *backend) front.Reply {
	pass, err := r.watch.traces().decide(ctx, r.gate, r.acts.of(x, b.Name, x.Method, ""))
	if err != nil {
		return r.failures.refused(err)
	}
	c, err := r.linkFor(x, b).get(ctx)
	if err != nil {
		return r.failures.fail(ctx, b.Name, pass, err)
	}
	result := c.offers.Greeting(era.Discovered(c.era, c.hello))
	if b.Builtin != nil && b.Name == guideServer {
		result = r.greet(ctx, x, result)
	}
	pass.Leave("ok", int64(len(result)))
	return front.Reply{Result: result}
}
