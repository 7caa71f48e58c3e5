package relay

import (
	"context"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// remember keeps what a legacy session sets up with a server beyond one call, so that it
// holds on the next connection too. A modern server has no such methods: there the log level
// becomes part of each request, and a subscription part of the one listen, and the request is
// answered here. done: the request is not sent to the server.
func (l *link) remember(ctx context.Context, x *front.Exchange, c *liveConn, t target) (reply upstream.Reply, done bool, err error) {
	reply = upstream.Reply{Result: rawjson.Empty}
	switch t.Method() {
	case "logging/setLevel":
		if era.Severity(wire.Get(t.Params(), "level")) < 0 {
			return reply, true, failure.Invalid{E: failure.Params}
		}
		bound(x.Session).setLevel(t.Params())
		return reply, c.era == front.Modern || l.heardAlready(c, t.Params()), nil
	case "resources/subscribe":
		done, err = l.subscribe(ctx, x, c, t.Name())
		return reply, done, err
	case "resources/unsubscribe":
		return reply, l.unsubscribe(x, c, t.Name()), nil
	}
	return reply, false, nil
}

// keepsHere reports whether a subscription is kept by Doorward, because the server is modern
// and has no such method.
func keepsHere(x *front.Exchange, c *liveConn, method string) bool {
	return x.Session != nil && c.era == front.Modern && method == "resources/subscribe"
}

func (l *link) subscribe(ctx context.Context, x *front.Exchange, c *liveConn, uri string) (done bool, err error) {
	d := bound(x.Session)
	h := d.heldOf(l)
	if h == nil {
		return true, front.ErrCannotAsk
	}
	defer d.note()
	modern := c.era == front.Modern
	l.hub.adjust(h.watcher, func(w *watcher) {
		w.want = w.want.With(uri, true)
		w.listens = w.listens || modern
	})
	if !modern {
		return false, nil
	}
	granted, err := l.hub.cover(ctx, h.watcher)
	if err == nil && !granted.URIs[uri] {
		l.unsubscribe(x, c, uri)
		err = failure.Invalid{E: failure.NoURI}
	}
	return true, err
}

// unsubscribe ends a subscription and reports whether the server needs no message. It gets
// one only when no other session on the connection is subscribed to the resource.
func (l *link) unsubscribe(x *front.Exchange, c *liveConn, uri string) (done bool) {
	d := bound(x.Session)
	h := d.heldOf(l)
	if h == nil {
		return true
	}
	defer d.note()
	d.mu.Lock()
	d.forget(l.b.Name, uri)
	l.hub.adjust(h.watcher, func(w *watcher) { w.want = w.want.With(uri, false) })
	d.mu.Unlock()
	return c.era == front.Modern || l.hub.wanted(uri, h.watcher)
}
