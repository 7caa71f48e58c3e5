package relay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/upstream"
)

// watcher receives a server's changes. Its hub guards what it wants.
type watcher struct {
	all     bool              // a session with a connection of its own hears everything
	alone   bool              // so does one that shares a connection, while no other session does
	session *front.Session    // of a legacy client; nil: of a listen
	want    *subscribe.Filter // the changes it hears otherwise, and the resources it asked for
	listens bool              // its client can be told: the server has to be listened to
	deliver func(upstream.Event)
	cause   context.Context // of the client's request that waits to be covered; nil: none waits
}

// hub spreads what a server says outside its calls to those who listen, and
// holds the one listen that a server needs for that. One for each link: over
// one pipe several listens would replace each other in servers that keep one
// for a connection (go-sdk v1.8.0 does).
type hub struct {
	link *link

	mu       sync.Mutex
	watchers map[*watcher]struct{}
	now      *listening // what is in force or being opened; nil: nothing
	last     *listening // begun last, ended or not
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
		h.now.final = true
		h.now.cancel()
		h.now = nil
	}
}

// adjust changes what a watcher wants.
func (h *hub) adjust(w *watcher, f func(*watcher)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(w)
}

// wanted reports whether a watcher other than w receives changes of the resource.
func (h *hub) wanted(uri string, w *watcher) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for o := range h.watchers {
		if o != w && o.want.URIs[uri] {
			return true
		}
	}
	return false
}

// listeners reports whether anybody is left for whom a server has to be
// listened to. The caller holds mu.
func (h *hub) listeners() bool {
	for w := range h.watchers {
		if w.listens {
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

// publish hands an event to every watcher that wants it. On a shared connection, a
// notification is for those whose listen asks for it, and without one it has no known
// addressee and is dropped. The questions in one about a task are decided for each
// client. A change of the tools also invalidates what was learnt about them.
func (h *hub) publish(e upstream.Event) {
	if e.Method == protocol.ToolsChanged {
		h.link.b.params.Forget()
	}
	if c := h.link.live.Load(); c != nil {
		c.offers.Changed(e.Method)
	}
	h.spread(e)
}

// spread is publish of what Doorward has found out itself: nothing that was learnt
// is forgotten for it.
func (h *hub) spread(e upstream.Event) {
	// A legacy server keeps its client's subscriptions itself; towards a modern one they
	// are ours to keep.
	c := h.link.live.Load()
	modern := c != nil && c.era == front.Modern
	ofTask := modern && e.Method == protocol.TaskChanged
	if blocked(e.Method) || !ofTask && !h.link.asks.questions.passes(h.link.asks.outsideCalls, &e) {
		return
	}
	ours := modern && e.Method == protocol.ResourceUpdated || ofTask
	h.mu.Lock()
	to := make([]*watcher, 0, len(h.watchers))
	for w := range h.watchers {
		if (w.all || w.alone && len(h.watchers) == 1) && !ours || (modern || protocol.IsChange(e.Method)) && w.want.Wants(e.Method, e.Params) {
			to = append(to, w)
		}
	}
	h.mu.Unlock()
	for _, w := range to {
		w.deliver(e)
	}
}

var errNoWatcher = errors.New("nobody listens any more")

// cover ensures that the server reports what w wants, and returns the part that
// the server honours.
func (h *hub) cover(ctx context.Context, w *watcher) (*subscribe.Filter, error) {
	h.adjust(w, func(w *watcher) { w.cause = context.WithoutCancel(ctx) })
	defer h.adjust(w, func(w *watcher) { w.cause = nil })
	c, err := h.link.get(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if _, watching := h.watchers[w]; !watching {
		h.mu.Unlock()
		return nil, errNoWatcher
	}
	cur := h.now
	if cur == nil || cur.conn != c || cur.refused || !cur.asks.Covers(w.want) {
		cur = h.start(c, 0)
	}
	want := w.want
	h.mu.Unlock()
	select {
	case <-cur.acked:
		return want.Both(&cur.granted), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// opened is called for each new connection and each client that begins to listen:
// it listens to the server when a client does.
func (h *hub) opened(c *liveConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.listeners():
	case h.sessionsAlone(c):
		c.conn.Listen()
	case h.now == nil || h.now.conn != c:
		h.start(c, 0)
	}
}

// sessionsAlone reports a legacy session on a legacy connection of its own. The
// session itself subscribes, and no other session hears the link.
func (h *hub) sessionsAlone(c *liveConn) bool {
	return h.link.client == front.Legacy && c.era == front.Legacy
}

// restore subscribes a new connection to what sessions had subscribed to on
// the one before.
func (h *hub) restore(ctx context.Context, c *liveConn) {
	if !h.sessionsAlone(c) {
		return
	}
	for _, uri := range h.resources() {
		req := upstream.Request{Method: "resources/subscribe", Params: subscribe.URIParams(uri)}
		if _, err := c.conn.Call(ctx, &req, nil); err != nil {
			h.link.r.log.Warn("a subscription was not restored", "server", h.link.b.Name, "err", err)
		}
	}
}

// resources are the resources with a watcher, in a fixed order.
func (h *hub) resources() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	uris := make(map[string]bool)
	for w := range h.watchers {
		maps.Copy(uris, w.want.URIs)
	}
	return slices.Sorted(maps.Keys(uris))
}

// start opens the listen that covers all watchers; tries counts the ones
// before it that the server did not acknowledge. The caller holds mu.
func (h *hub) start(c *liveConn, tries int) *listening {
	ctx, cancel := context.WithCancel(h.link.ctx)
	l := &listening{hub: h, conn: c, cause: h.cause(), ctx: ctx, cancel: cancel, before: h.last, tries: tries,
		asks: subscribe.Lists(), acked: make(chan struct{}), ended: make(chan struct{})}
	for w := range h.watchers {
		if w.listens {
			l.asks.Add(w.want)
		}
	}
	h.now, h.last = l, l
	go l.run()
	return l
}

// cause is the context of a client's request that waits to be covered: the server's listen
// is a part of its trace. The caller holds mu.
func (h *hub) cause() context.Context {
	for w := range h.watchers {
		if w.cause != nil {
			return w.cause
		}
	}
	return context.Background()
}

// overOnePipe reports whether a second listen would disturb the first.
func (l *link) overOnePipe(c *liveConn) bool { return c.era == front.Legacy || l.b.Kind == "stdio" }
