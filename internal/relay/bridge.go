package relay

import (
	"context"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/upstream"
)

// remember keeps what a legacy session sets up with a server beyond one call, so that it
// holds on the next connection too. A modern server has no such methods: there the log level
// becomes part of each request, and a subscription part of the one listen, and the request is
// answered here. done: the request is not sent to the server; otherwise settle has to be
// called with its outcome.
func (l *link) remember(ctx context.Context, x *front.Exchange, c *liveConn, t *target) (reply upstream.Reply, settle outcome, done bool, err error) {
	reply, settle = upstream.Reply{Result: rawjson.Empty}, func(bool) {}
	switch t.Method() {
	case "logging/setLevel":
		if era.Severity(rawjson.Get(t.Params(), "level")) < 0 {
			return reply, settle, true, failure.Invalid{E: failure.Params}
		}
		bound(x.Session).memory.setLevel(t.Params())
		if c.era == front.Modern {
			return reply, settle, true, nil
		}
		settle, done = l.heardAlready(c, t.Params())
		return reply, settle, done, nil
	case "resources/subscribe":
		settle, done, err = l.subscribe(ctx, x, c, t.Name())
		return reply, settle, done, err
	case "resources/unsubscribe":
		settle = func(bool) { // the end may have crossed another beginning
			if l.hub.watchers.wanted(t.Name(), nil) {
				go l.hub.subscribe(l.ctx, c, []string{t.Name()})
			}
		}
		return reply, settle, l.unsubscribe(x, c, t.Name()), nil
	}
	return reply, settle, false, nil
}

// keepsHere reports whether a subscription is kept by Doorward, because the server is modern
// and has no such method.
func keepsHere(x *front.Exchange, c *liveConn, method string) bool {
	return x.Session != nil && c.era == front.Modern && method == "resources/subscribe"
}

// subscribe begins a subscription before the server is asked, so that no change is missed.
// settle ends it again if the server refuses it.
func (l *link) subscribe(ctx context.Context, x *front.Exchange, c *liveConn, uri string) (settle outcome, done bool, err error) {
	d := bound(x.Session)
	h := d.heldOf(l)
	if h == nil {
		return nil, true, front.ErrCannotAsk
	}
	was, err := d.begins(h, uri)
	if err != nil {
		return nil, true, err
	}
	settle = func(ok bool) {
		if !ok && !was {
			h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { w.want = w.want.With(uri, false) })
		}
		d.memory.note()
	}
	if c.era != front.Modern {
		return settle, false, nil
	}
	l.hub.watchers.adjust(h.watcher, func(w *watcher) { w.listens = true })
	ctx, cancel := l.b.limited(ctx)
	defer cancel()
	granted, err := l.hub.cover(ctx, h.watcher)
	if err == nil && !granted.URIs[uri] {
		l.unsubscribe(x, c, uri)
		return nil, true, failure.Invalid{E: failure.NoURI}
	}
	settle(err == nil)
	return nil, true, err
}

// begins makes a resource one that the session is subscribed to. was: it was that already. A
// session has at most as many subscriptions as a listen has.
func (d *binding) begins(h *held, uri string) (was bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was = h.subscribed()[uri]
	if !was && !d.memory.kept[h.link.b.Name][uri] && d.memory.subscriptions() >= maxObjects {
		return was, failure.Invalid{E: failure.Subscriptions}
	}
	h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { w.want = w.want.With(uri, true) })
	return was, nil
}

// unsubscribe ends a subscription and reports whether the server needs no message. It gets
// one only when no other session on the connection is subscribed to the resource.
func (l *link) unsubscribe(x *front.Exchange, c *liveConn, uri string) (done bool) {
	d := bound(x.Session)
	h := d.heldOf(l)
	if h == nil {
		return true
	}
	defer d.memory.note()
	d.mu.Lock()
	d.memory.forget(l.b.Name, uri)
	l.hub.watchers.adjust(h.watcher, func(w *watcher) { w.want = w.want.With(uri, false) })
	d.mu.Unlock()
	return c.era == front.Modern || l.hub.watchers.wanted(uri, h.watcher)
}
