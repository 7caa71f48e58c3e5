package relay

import (
	"context"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// filter is what a listener wants to hear (Subscriptions, "Filter").
type filter struct {
	tools, prompts, resources bool
	uris                      map[string]bool
}

// watcher hears a server's changes. A session with a connection of its own
// hears everything (want nil).
type watcher struct {
	session *front.Session
	want    *filter
	deliver func(upstream.Event) // must not block
}

// wants decides whether an event is for w.
func (w *watcher) wants(e upstream.Event) bool {
	if w.want == nil {
		return true
	}
	switch e.Method {
	case "notifications/tools/list_changed":
		return w.want.tools
	case "notifications/prompts/list_changed":
		return w.want.prompts
	case "notifications/resources/list_changed":
		return w.want.resources
	case "notifications/resources/updated":
		uri, _ := wire.GetString(e.Params, "uri")
		return w.want.uris[uri]
	}
	return false
}

// hub spreads what a server says outside its calls to those who listen, and
// holds the one listen that a modern server needs for that. One for each
// link: over one pipe several listens would replace each other in servers
// that keep one for a connection.
type hub struct {
	link *link

	mu       sync.Mutex
	watchers map[*watcher]struct{}
	now      *listening
}

// listening is one upstream subscriptions/listen, or what stands for it on a
// legacy connection.
type listening struct {
	conn    *liveConn
	uris    map[string]bool
	acked   chan struct{} // closed when honoured is known
	ended   chan struct{} // closed when the upstream call has ended
	granted []byte        // the honoured notifications object; nil: refused
	cancel  context.CancelFunc
}

func (h *hub) watch(w *watcher) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = make(map[*watcher]struct{}, 1)
	}
	h.watchers[w] = struct{}{}
	return func() { h.unwatch(w) }
}

func (h *hub) unwatch(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
	if h.now != nil && !h.listeners() {
		h.now.cancel()
		h.now = nil
	}
}

// listeners reports whether anybody is left who wanted a listen. The caller
// holds mu.
func (h *hub) listeners() bool {
	for w := range h.watchers {
		if w.want != nil {
			return true
		}
	}
	return false
}

func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

func (h *hub) onlySession() *front.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) != 1 {
		return nil
	}
	for w := range h.watchers {
		return w.session
	}
	return nil
}

// publish hands an event to everybody who wants it. A change of the tools
// also makes what was learnt about them stale.
func (h *hub) publish(e upstream.Event) {
	if e.Method == "notifications/tools/list_changed" {
		h.link.b.params.forget()
	}
	if blocked(e.Method) {
		return
	}
	h.mu.Lock()
	to := make([]*watcher, 0, len(h.watchers))
	for w := range h.watchers {
		if w.wants(e) {
			to = append(to, w)
		}
	}
	alone := len(h.watchers) == 1
	h.mu.Unlock()
	if !isChange(e.Method) && !alone {
		return // it belongs to nobody in particular on a shared connection
	}
	for _, w := range to {
		w.deliver(e)
	}
}

// cover makes sure that the server tells of what w wants, and returns the
// notifications object that the server honours.
func (h *hub) cover(ctx context.Context, w *watcher) ([]byte, error) {
	c, err := h.link.get(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	cur := h.now
	if cur == nil || cur.conn != c || !subset(w.want.uris, cur.uris) {
		if cur != nil {
			cur.cancel()
		}
		cur = h.start(c, cur)
	}
	h.mu.Unlock()
	select {
	case <-cur.acked:
		return cur.granted, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start opens the listen that covers all watchers. The caller holds mu.
func (h *hub) start(c *liveConn, before *listening) *listening {
	ctx, cancel := context.WithCancel(h.link.r.closing)
	l := &listening{conn: c, uris: make(map[string]bool), acked: make(chan struct{}), ended: make(chan struct{}), cancel: cancel}
	for w := range h.watchers {
		if w.want == nil {
			continue
		}
		for uri := range w.want.uris {
			l.uris[uri] = true
		}
	}
	h.now = l
	if c.era == front.Modern {
		go h.hold(ctx, l, before)
	} else {
		go h.follow(ctx, l)
	}
	return l
}

// hold keeps a modern listen open. Where the connection is one pipe, the one
// before must have ended first: a server that keeps one listen for a
// connection would end both (go-sdk v1.8.0 does).
func (h *hub) hold(ctx context.Context, l *listening, before *listening) {
	defer close(l.ended)
	if before != nil && before.conn == l.conn && h.link.b.Kind == "stdio" {
		select {
		case <-before.ended:
		case <-time.After(2 * time.Second):
		}
	}
	params := append([]byte(`{"_meta":`), h.link.meta(nil)...)
	params = append(append(params, `,"notifications":`...), everything(l.uris)...)
	req := upstream.Request{Method: "subscriptions/listen", Params: append(params, '}')}
	acked := false
	_, err := l.conn.conn.Call(ctx, &req, func(e upstream.Event) {
		if e.Method == "notifications/subscriptions/acknowledged" {
			if !acked {
				acked = true
				l.granted = append([]byte(nil), wire.Get(e.Params, "notifications")...)
				close(l.acked)
			}
			return
		}
		h.publish(e)
	})
	if !acked {
		close(l.acked)
	}
	if ctx.Err() == nil && acked {
		h.restart(l, err)
	}
}

// restart re-opens a listen that ended by itself, as long as somebody
// listens: the clients' own stay open, and are told to look again.
func (h *hub) restart(l *listening, err error) {
	h.link.r.log.Info("server ended its listen", "server", h.link.b.Name, "err", err)
	select {
	case <-time.After(time.Second):
	case <-h.link.r.closing.Done():
		return
	}
	ctx, cancel := context.WithTimeout(h.link.r.closing, dialTime)
	defer cancel()
	c, err := h.link.get(ctx)
	if err != nil {
		return
	}
	h.mu.Lock()
	if h.now != l || !h.listeners() {
		h.mu.Unlock()
		return
	}
	next := h.start(c, nil)
	h.mu.Unlock()
	<-next.acked
	for _, m := range []string{"tools", "prompts", "resources"} {
		h.publish(upstream.Event{Method: "notifications/" + m + "/list_changed"})
	}
}

// follow stands for a listen on a legacy connection: changes come by
// themselves on its standalone stream, resources by subscription.
func (h *hub) follow(ctx context.Context, l *listening) {
	defer close(l.ended)
	l.conn.conn.Listen()
	caps := wire.Get(l.conn.hello, "capabilities")
	f := filter{uris: make(map[string]bool)}
	f.tools = isTrue(wire.GetPath(caps, "tools", "listChanged"))
	f.prompts = isTrue(wire.GetPath(caps, "prompts", "listChanged"))
	f.resources = isTrue(wire.GetPath(caps, "resources", "listChanged"))
	if isTrue(wire.GetPath(caps, "resources", "subscribe")) {
		for uri := range l.uris {
			params := append(wire.AppendQuote([]byte(`{"uri":`), uri), '}')
			reply, err := l.conn.conn.Call(ctx, &upstream.Request{Method: "resources/subscribe", Params: params}, nil)
			if err == nil && reply.Error == nil {
				f.uris[uri] = true
			}
		}
	}
	l.granted = f.json()
	close(l.acked)
}

func isTrue(raw []byte) bool { return string(raw) == "true" }

func subset(a, b map[string]bool) bool {
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}
