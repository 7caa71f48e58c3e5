package relay

import (
	"context"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// notices takes notifications of clients to their servers.
type notices struct {
	gate        *gate.Gate
	watch       watch
	note        func(*audit.Record)
	table       *atomic.Pointer[table]
	acts        *acts
	sight       *sight
	leaving     *leaving
	failures    *failures
	translation *translation
	sessions    *sessions
}

// take takes a notification of a client. Those that the protocol defines go where they have a
// meaning, any other one to the server it addresses. The error says why that server did not
// get it.
func (n *notices) take(ctx context.Context, x *front.Exchange) *wire.Error {
	switch x.Method {
	case front.Listening:
		n.sessions.of(x.Session).listen(x)
	case protocol.RootsChanged, "notifications/progress":
		n.toSession(ctx, x)
	case "notifications/cancelled", "notifications/initialized": // handled by front; a server has no use for them
	default:
		return n.toServer(ctx, x)
	}
	return nil
}

// toSession passes a notification of a legacy session to the servers whose link belongs to
// that session alone. The modern era does not have these notifications.
func (n *notices) toSession(ctx context.Context, x *front.Exchange) {
	if x.Session == nil {
		return
	}
	for _, h := range n.sessions.of(x.Session).all() {
		rooted := x.Method == protocol.RootsChanged
		if !h.link.private() || x.Server == "" && !rooted || rooted && rawjson.GetPath(h.link.init, "capabilities", "roots") == nil {
			continue
		}
		live := h.link.live.Load()
		t, err := resolve.Notice(h.link.b.Name, x.Method, x.Params)
		if err == nil && live != nil && live.alive() && live.era == front.Legacy {
			n.notify(ctx, x, h.link, t)
		}
	}
}

// toServer passes a notification that Doorward does not know to the server of its route. On
// the aggregate it goes to the server of the object that it names.
func (n *notices) toServer(ctx context.Context, x *front.Exchange) *wire.Error {
	t, err := resolve.Notice(x.Server, x.Method, x.Params)
	if err != nil {
		return failure.NoAddressee
	}
	b := n.table.Load().byName[t.Server()]
	if b == nil || !n.sight.visible(x.Who, b.Name) {
		return failure.NoAddressee
	}
	return n.notify(ctx, x, n.sessions.linkFor(x, b), t)
}

// notify takes one notification through the gate to a server, which is started if needed.
func (n *notices) notify(ctx context.Context, x *front.Exchange, l *link, t resolve.Target) *wire.Error {
	w, act := n.watch.traces(), n.acts.on(x, t)
	pass, err := w.decide(ctx, n.gate, &act)
	if err != nil {
		return n.failures.refused(err).Error
	}
	ctx, m := w.stage(ctx, StageServer, &act)
	e := n.carried(ctx, x, l, t, act, pass)
	w.end(m, noticeWord(e))
	return e
}

// noticeWord returns the observed result of a notification.
func noticeWord(e *wire.Error) string {
	if e == nil {
		return "ok"
	}
	return "failed"
}

// carried takes an admitted notification to its server.
func (n *notices) carried(ctx context.Context, x *front.Exchange, l *link, t resolve.Target, act gate.Act, pass gate.Pass) *wire.Error {
	l.calls.Add(1)
	defer l.calls.Add(-1)
	c, err := l.get(ctx)
	if err != nil {
		return n.failures.fail(ctx, l.b.Name, pass, err).Error
	}
	params, ok := n.leaving.search(act, n.params(x, l, c, t), beside(t.Method(), nil)...)
	if ok {
		var found content.Findings
		params, ok = content.Notice(l.b.Scan, &found, params)
		for _, f := range found.Take() {
			n.note(gate.Finding(n.acts.of(x, l.b.Name, x.Method, ""), pass.Ref, f.Rule, f.Result, f.N))
		}
	}
	if !ok {
		pass.Leave("blocked", 0)
		return n.failures.local(gate.CodeDenied, "Denied by policy", pass.Ref, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	if err := c.conn.Notify(ctx, t.Method(), n.watch.traced(ctx, params)); err != nil {
		return n.failures.fail(ctx, l.b.Name, pass, err).Error
	}
	pass.Leave("ok", 0)
	return nil
}

// params returns the params as they came, apart from what the eras require in _meta.
func (n *notices) params(x *front.Exchange, l *link, c *liveConn, t resolve.Target) []byte {
	switch {
	case x.Era == front.Legacy && c.era == front.Modern:
		return rawjson.SetIn(t.Params(), "_meta", n.translation.modernMeta(x, l.b)...)
	case x.Era == front.Modern && c.era == front.Legacy && rawjson.Get(t.Params(), "_meta") != nil:
		return rawjson.SetIn(t.Params(), "_meta", era.LegacyMeta...)
	}
	return t.Params()
}
