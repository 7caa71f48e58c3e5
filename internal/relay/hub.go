package relay

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// watcher receives the changes of one server for a client. Its hub guards its fields.
type watcher struct {
	all     bool              // a session with a connection of its own receives every event
	alone   bool              // the same for a session on a shared connection, while it is the only watcher
	session *front.Session    // of a legacy client; nil: the watcher of a listen
	want    *subscribe.Filter // the lists and the objects whose changes it receives otherwise
	listens bool              // its client can receive changes, so the server has to be listened to
	deliver func(upstream.Event)
	sees    func() bool                              // policy lets its client see the server
	again   func(uri string, with *gate.Charge) bool // decides a subscription that is made again; nil: of a listen
	cause   context.Context                          // of the client's request that waits to be covered; nil: none waits
	refused *subscribe.Filter                        // the value of want with which the server refused a listen for all; nil: none
}

// hearsTask reports whether a session may hear of the change of a legacy server's task.
func (w *watcher) hearsTask(b *backend, e upstream.Event) bool {
	return !minglesTasks(b, front.Legacy) || w.session != nil && b.tasks.has(w.session.Who, rawjson.Get(e.Params, "taskId"))
}

// hub spreads a server's messages outside of calls to the watchers of a link, and holds the
// one listen that the server needs for that. There is one listen for each link, because over
// one pipe several listens would replace each other in servers that keep one for a connection
// (go-sdk v1.8.0 does).
type hub struct {
	b      *backend
	client front.Era                                // of the link
	ctx    context.Context                          // ends with the link
	get    func(context.Context) (*liveConn, error) // the link's connection
	live   *atomic.Pointer[liveConn]                // the link's open connection
	asks   *questioner
	log    *slog.Logger
	traces watch

	mu       sync.Mutex
	watchers []*watcher
	now      *listening // in force or being opened; nil: none
	last     *listening // begun last, whether it has ended or not
	guarded  *standby   // for the connection of legacy sessions that listen or have listened; nil: none
	met      *liveConn  // the connection opened last, while the link has had a watcher since; nil: none
	joined   uint64     // how many watchers there have been
}

func (h *hub) watch(w *watcher) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = append(h.watchers, w)
	h.joined++
	return func() { h.unwatch(w) }
}

func (h *hub) unwatch(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = slices.DeleteFunc(h.watchers, func(o *watcher) bool { return o == w })
	if len(h.watchers) == 0 {
		h.met = nil
	}
	if h.listeners() {
		return
	}
	if h.now != nil {
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
	for _, o := range h.watchers {
		if o != w && o.want.URIs[uri] {
			return true
		}
	}
	return false
}

// listeners reports whether a watcher is left for which the server has to be listened to. The
// caller holds mu.
func (h *hub) listeners() bool {
	for _, w := range h.watchers {
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
// notification goes to the watchers that asked for it; one that no watcher asked for has no
// known addressee and is dropped. The questions in a notification about a task are decided
// for each client. A change of the tools also invalidates what was learnt about them.
func (h *hub) publish(e upstream.Event) {
	if e.Method == protocol.ToolsChanged {
		h.b.params.Forget()
	}
	if c := h.live.Load(); c != nil {
		c.offers.Changed(e.Method)
	}
	h.spread(e)
}

// spread is publish for a change that Doorward has found out itself: what was learnt about
// the server is kept.
func (h *hub) spread(e upstream.Event) {
	// A legacy server keeps its client's subscriptions itself; those at a modern server are
	// kept here.
	c := h.live.Load()
	modern := c != nil && c.era == front.Modern
	ofTask := modern && e.Method == protocol.TaskChanged
	if blocked(e.Method) || !ofTask && !h.asks.questions.passes(h.asks.outsideCalls, &e) {
		return
	}
	ours := modern && e.Method == protocol.ResourceUpdated || ofTask
	h.mu.Lock()
	to := make([]*watcher, 0, len(h.watchers))
	for _, w := range h.watchers {
		if e.Method == protocol.TaskChanged && !modern && !w.hearsTask(h.b, e) {
			continue
		}
		if (w.all || w.alone && len(h.watchers) == 1) && !ours || (modern || protocol.IsChange(e.Method)) && w.want.Wants(e.Method, e.Params) {
			to = append(to, w)
		}
	}
	h.mu.Unlock()
	for _, w := range to {
		w.deliver(e)
	}
}

// Pauses before a listen or a server is tried again, doubled with each failure.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// sessionsAlone reports whether legacy sessions use a legacy connection. They subscribe
// themselves, so that no listen of the hub is needed.
func (h *hub) sessionsAlone(c *liveConn) bool {
	return h.client == front.Legacy && c.era == front.Legacy
}

// restore subscribes a new connection to the resources that sessions had subscribed to on the
// one before, if policy still lets one of them.
func (h *hub) restore(ctx context.Context, c *liveConn) {
	if h.sessionsAlone(c) {
		subscribeTo(ctx, h, c, h.allowed())
	}
}

// subscribeTo subscribes a connection of legacy sessions to resources that they are
// subscribed to, for sideTime at most. What fails is tried again in the background.
func subscribeTo(ctx context.Context, h *hub, c *liveConn, uris []string) {
	ctx, cancel := context.WithTimeout(ctx, sideTime)
	defer cancel()
	left := slices.DeleteFunc(uris, func(uri string) bool { return c.subscribes(ctx, uri) })
	if len(left) > 0 {
		go subscribeLater(h, c, left)
	}
}

// subscribeLater goes on with subscribeTo for about a minute: a server that has just started
// may not have the resources yet. They may have changed before, and the sessions are told so.
func subscribeLater(h *hub, c *liveConn, uris []string) {
	for pause := firstRetry; len(uris) > 0 && pause < lastRetry; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-c.conn.Done():
			return
		}
		uris = slices.DeleteFunc(uris, func(uri string) bool {
			if !h.wanted(uri, nil) {
				return true
			}
			ctx, cancel := context.WithTimeout(h.ctx, sideTime)
			defer cancel()
			done := c.subscribes(ctx, uri)
			if done {
				h.publish(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(uri)})
			}
			return done
		})
	}
	if len(uris) > 0 {
		h.log.Warn("subscriptions were not restored", "server", h.b.Name, "resources", len(uris))
	}
}

// subscribes subscribes a legacy connection to a resource, and reports whether the server has
// accepted that.
func (c *liveConn) subscribes(ctx context.Context, uri string) bool {
	reply, err := c.conn.Call(ctx, &upstream.Request{Method: "resources/subscribe", Params: subscribe.URIParams(uri)}, nil)
	return err == nil && reply.Error == nil
}

// allowed decides and records the subscriptions of each session, and returns the resources
// that one of them may still be subscribed to, in a fixed order.
func (h *hub) allowed() []string {
	uris := make(map[string]bool)
	for w, mine := range h.subscribed() {
		with := new(gate.Charge)
		for _, uri := range slices.Sorted(maps.Keys(mine)) {
			if w.again(uri, with) {
				uris[uri] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(uris))
}

// subscribed returns the resources of each watcher of a legacy session. A filter is never
// changed, so its resources can be read without the lock.
func (h *hub) subscribed() map[*watcher]map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[*watcher]map[string]bool)
	for _, w := range h.watchers {
		if w.again != nil && len(w.want.URIs) > 0 {
			out[w] = w.want.URIs
		}
	}
	return out
}

// resources returns the resources with a watcher, in a fixed order.
func (h *hub) resources() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	uris := make(map[string]bool)
	for _, w := range h.watchers {
		maps.Copy(uris, w.want.URIs)
	}
	return slices.Sorted(maps.Keys(uris))
}

// only returns the session that alone uses the link; nil: there are several, or none.
func (h *hub) only() *front.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) != 1 {
		return nil
	}
	return h.watchers[0].session
}

// sessions returns the legacy sessions that use the link.
func (h *hub) sessions() (out []*front.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers {
		if w.session != nil {
			out = append(out, w.session)
		}
	}
	return out
}

// blocked names notifications that would put a server's text into the client's conversation
// unasked; only Doorward itself may send them.
func blocked(method string) bool { return method == "notifications/claude/channel" }
