package relay

import (
	"cmp"
	"context"
	"errors"
	"net/http"
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

// Request implements front.Handler.
func (r *Relay) Request(ctx context.Context, x *front.Exchange) front.Reply {
	asked, err := resolve.Request(x.Server, x.Method, x.ID, x.Params)
	if err != nil {
		return front.Reply{Error: unresolved(x.Method, err)}
	}
	if x.Era == front.Modern {
		if level := era.LevelOf(x); level != nil && era.Severity(level) < 0 {
			return front.Reply{Error: failure.Params}
		}
	}
	if reply := r.leaving.hello(x); reply != nil {
		return *reply
	}
	if x.Server == "" {
		return r.aggregate(ctx, x, asked)
	}
	t, ok := r.table.Load().aim(asked)
	if !ok { // removed since the front looked it up
		return front.Reply{Error: failure.NoServer, Status: http.StatusNotFound}
	}
	return r.single(ctx, x, &t)
}

// unresolved answers a request whose target cannot be resolved.
func unresolved(method string, err error) *wire.Error {
	switch {
	case errors.Is(err, resolve.ErrNoID):
		return failure.NoID
	case errors.Is(err, resolve.ErrName):
		return unknown(method)
	}
	return failure.NoMethod
}

// unknown answers a request that names no object of a server.
func unknown(method string) *wire.Error {
	return cmp.Or(failure.UnknownOf(method), failure.NoMethod)
}

// single serves a request on a route of one server, names as they are.
func (r *Relay) single(ctx context.Context, x *front.Exchange, t *target) front.Reply {
	b := t.b
	switch x.Method {
	case "ping":
		return front.Reply{Result: rawjson.Empty}
	case "initialize":
		return r.greetings.initialize(ctx, x, b)
	case "server/discover":
		return r.greetings.discover(ctx, x, b)
	case "subscriptions/listen":
		return r.listens.serve(ctx, x, []*backend{b})
	}
	return r.lists.of(ctx, x, t)
}

// aggregate serves a request on /mcp: every server the caller may use.
func (r *Relay) aggregate(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	switch x.Method {
	case "ping":
		return front.Reply{Result: rawjson.Empty}
	case "initialize":
		return r.greetings.initializeAll(ctx, x)
	case "server/discover":
		return r.greetings.discoverAll(ctx, x)
	case "subscriptions/listen":
		return r.listens.serve(ctx, x, r.sight.servers(x.Who))
	case "logging/setLevel":
		return r.setLevels(ctx, x, asked)
	}
	if strings.HasSuffix(x.Method, "/list") {
		return r.lists.merged(ctx, x, asked)
	}
	return r.routed(ctx, x, asked)
}

// setLevels sets a log level at every server of the session, now and when a server is
// connected later. A server that does not answer does not delay the others.
func (r *Relay) setLevels(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	if x.Session == nil || era.Severity(rawjson.Get(x.Params, "level")) < 0 {
		return front.Reply{Error: failure.Params}
	}
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	bind := r.sessions.of(x.Session)
	bind.memory.setLevel(x.Params)
	var wg sync.WaitGroup
	with := new(gate.Charge)
	for _, h := range bind.all() {
		c := h.link.live.Load()
		if c == nil || c.era != front.Legacy || rawjson.GetPath(c.hello, "capabilities", "logging") == nil {
			continue
		}
		if t, ok := r.table.Load().aim(asked.At(h.link.b.Name)); ok {
			t.with = with
			wg.Go(func() { r.calls.call(ctx, x, &t) })
		}
	}
	wg.Wait()
	return front.Reply{Result: rawjson.Empty}
}

// routed serves a request of the aggregate whose params name a server.
func (r *Relay) routed(ctx context.Context, x *front.Exchange, asked resolve.Target) front.Reply {
	t, ok := r.table.Load().aim(asked)
	if !ok || !r.sight.visible(x.Who, t.b.Name) && !r.sight.shut(x.Who, t.b) {
		return front.Reply{Error: unknown(x.Method)}
	}
	if args := argsOf(&t); args != nil {
		own := naming.Server(t.b.Name).Arguments(args)
		if t.Target, ok = t.With(rawjson.Set(t.Params(), rawjson.Edit{Key: "arguments", Value: own})); !ok {
			return front.Reply{Error: failure.Params}
		}
	}
	return r.calls.call(ctx, x, &t)
}
