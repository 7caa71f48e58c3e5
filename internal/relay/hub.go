package relay

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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
	b      *backend
	client front.Era                                // of the link
	ctx    context.Context                          // ends with the link
	get    func(context.Context) (*liveConn, error) // the link's connection
	live   *atomic.Pointer[liveConn]                // the same as it is now
	asks   *questioner
	log    *slog.Logger
	traces watch

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
		h.b.params.Forget()
	}
	if c := h.live.Load(); c != nil {
		c.offers.Changed(e.Method)
	}
	h.spread(e)
}

// spread is publish of what Doorward has found out itself: nothing that was learnt
// is forgotten for it.
func (h *hub) spread(e upstream.Event) {
	// A legacy server keeps its client's subscriptions itself; towards a modern one they
	// are ours to keep.
	c := h.live.Load()
	modern := c != nil && c.era == front.Modern
	ofTask := modern && e.Method == protocol.TaskChanged
	if blocked(e.Method) || !ofTask && !h.asks.questions.passes(h.asks.outsideCalls, &e) {
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

// sessionsAlone reports a legacy session on a legacy connection of its own. The
// session itself subscribes, and no other session hears the link.
func (h *hub) sessionsAlone(c *liveConn) bool {
	return h.client == front.Legacy && c.era == front.Legacy
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
			h.log.Warn("a subscription was not restored", "server", h.b.Name, "err", err)
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

// only is the session that alone uses the link; nil when there are several, or none.
func (h *hub) only() *front.Session {
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

// sessions are the legacy sessions that use the link.
func (h *hub) sessions() (out []*front.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		if w.session != nil {
			out = append(out, w.session)
		}
	}
	return out
}

// blocked names notifications that would put a server's text into the
// client's conversation unasked; only Doorward itself may use that channel.
func blocked(method string) bool { return method == "notifications/claude/channel" }
