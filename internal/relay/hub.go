package relay

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/upstream"
)

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

	watchers watchers

	mu      sync.Mutex
	now     *listening // in force or being opened; nil: none
	last    *listening // begun last, whether it has ended or not
	guarded *standby   // for the connection of legacy sessions that listen or have listened; nil: none
	met     *liveConn  // the connection opened last, while the link has had a watcher since; nil: none
}

func (h *hub) watch(w *watcher) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers.add(w)
	return func() { h.unwatch(w) }
}

func (h *hub) unwatch(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers.remove(w)
	if h.watchers.empty() {
		h.met = nil
	}
	if h.now != nil && h.watchers.listening() == nil {
		h.now.final = true
		h.now.cancel()
		h.now = nil
	}
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
	if blocked(e.Method) || withholds(c, e) || !ofTask && !h.asks.questions.passes(h.asks.outsideCalls, &e) {
		return
	}
	ours := modern && e.Method == protocol.ResourceUpdated || ofTask
	hears := func(w *watcher) bool {
		if e.Method == protocol.TaskChanged && !modern && !w.hearsTask(h.b, e) {
			return false
		}
		return (w.all || w.alone && len(h.watchers.all) == 1) && !ours || (modern || protocol.IsChange(e.Method)) && w.want.Wants(e.Method, e.Params)
	}
	for _, w := range h.watchers.that(hears) {
		w.deliver(e)
	}
}

// lookAgain tells the clients to look again at all that the server has, because it may be
// another process or session.
func (h *hub) lookAgain() { h.doubt(func(list []byte) bool { return list != nil }) }

// missed tells the clients to look again at what the server reports changes of, because such
// reports may have been lost.
func (h *hub) missed() {
	h.doubt(func(list []byte) bool { return rawjson.IsTrue(rawjson.Get(list, "listChanged")) })
}

// doubt publishes a change of each list whose capability, nil if the server does not declare
// it, is one that may have changed, and of each resource with a watcher.
func (h *hub) doubt(may func(capability []byte) bool) {
	c := h.live.Load()
	for _, m := range []string{protocol.ToolsChanged, protocol.PromptsChanged, protocol.ResourcesChanged} {
		if c == nil || may(rawjson.GetPath(c.hello, "capabilities", subscribe.ListCapability[m])) {
			h.publish(upstream.Event{Method: m})
		}
	}
	for _, uri := range h.watchers.resources() {
		h.publish(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(uri)})
	}
}

// sessionsAlone reports whether legacy sessions use a legacy connection. They subscribe
// themselves, so that no listen of the hub is needed.
func (h *hub) sessionsAlone(c *liveConn) bool {
	return h.client == front.Legacy && c.era == front.Legacy
}

// withholds reports whether a change is of a resource that is withheld on the connection. It may
// have been withheld after clients subscribed to it.
func withholds(c *liveConn, e upstream.Event) bool {
	if c == nil || e.Method != protocol.ResourceUpdated {
		return false
	}
	uri, _ := rawjson.GetString(e.Params, "uri")
	return c.offers.Withholds(uri)
}

// blocked names notifications that would put a server's text into the client's conversation
// unasked; only Doorward itself may send them.
func blocked(method string) bool { return method == "notifications/claude/channel" }
