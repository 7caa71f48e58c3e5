package relay

import (
	"context"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// emulate serves what a legacy client may ask and a modern server no longer
// has: a log level becomes part of each request, a subscription part of the
// one listen (protocol.md 3.8, 3.10). False for any other method.
func (l *link) emulate(ctx context.Context, x *front.Exchange, t target) (upstream.Reply, bool, error) {
	bind := l.r.bindingOf(x.Session)
	switch t.method {
	case "logging/setLevel":
		bind.mu.Lock()
		bind.level = append([]byte(nil), t.params...)
		bind.mu.Unlock()
	case "resources/subscribe", "resources/unsubscribe":
		if err := bind.want(ctx, l, t.name, t.method == "resources/subscribe"); err != nil {
			return upstream.Reply{}, true, err
		}
	default:
		return upstream.Reply{}, false, nil
	}
	return upstream.Reply{Result: emptyResult}, true, nil
}

// hearModern begins to listen on a modern server for a legacy session, which
// is told of every list that changes.
func (d *binding) hearModern(l *link) {
	w := d.watcherOf(l)
	if w == nil {
		return
	}
	l.hub.mu.Lock()
	if w.want == nil {
		w.want = &filter{tools: true, prompts: true, resources: true, uris: make(map[string]bool)}
	}
	l.hub.mu.Unlock()
	ctx, cancel := context.WithTimeout(d.session.Context(), listTime)
	defer cancel()
	if _, err := l.hub.cover(ctx, w); err != nil {
		d.r.log.Debug("listening to server failed", "server", l.b.Name, "err", err)
	}
}

// want adds a resource to what the session hears of a modern server, or takes
// it away.
func (d *binding) want(ctx context.Context, l *link, uri string, on bool) error {
	w := d.watcherOf(l)
	if w == nil {
		return front.ErrCannotAsk
	}
	l.hub.mu.Lock()
	if w.want == nil {
		w.want = &filter{tools: true, prompts: true, resources: true}
	}
	uris := make(map[string]bool, len(w.want.uris)+1) // publish reads the old one
	for u := range w.want.uris {
		uris[u] = true
	}
	if on {
		uris[uri] = true
	} else {
		delete(uris, uri)
	}
	next := *w.want
	next.uris = uris
	w.want = &next
	l.hub.mu.Unlock()
	if !on {
		return nil
	}
	_, err := l.hub.cover(ctx, w)
	return err
}

// watcherOf is what the session hears a link with.
func (d *binding) watcherOf(l *link) *watcher {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.links[l.b]
	if h == nil || h.link != l {
		return nil
	}
	return h.watcher
}

// levelOf is the log level that a legacy session has asked for, raw.
func (d *binding) levelOf() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return wire.Get(d.level, "level")
}
