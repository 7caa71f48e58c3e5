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
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// binding holds the links of one legacy session: one for each server that it has used. It is
// closed with the session.
type binding struct {
	sessions *sessions
	session  *front.Session
	leave    func() // leaves the audience

	noting  sync.Mutex // held while the state is read and stored, so that the latest is stored last
	mu      sync.Mutex
	links   []*held                    // one for each server
	level   []byte                     // params of the last logging/setLevel
	kept    map[string]map[string]bool // by server: the resources it was subscribed to when it gave up its links
	tasks   []ownTask                  // that its calls made, the newest last
	rested  map[string]bool            // servers whose links it gave up because it paused
	listens bool                       // the client has opened its standalone stream
	stale   bool                       // the client was not told of a change, because the stream was not open
	closed  bool
}

// sessions holds the bindings of the legacy sessions.
type sessions struct {
	left     time.Duration // see leftAfter
	table    *atomic.Pointer[table]
	log      *slog.Logger
	audience subscribe.Audience
	bindings sync.Map // *binding
	acts     *acts
	sight    *sight
	levels   *levels
	links    *links
}

// held is one link of a session, with the receiver of its events.
type held struct {
	link    *link
	watcher *watcher
	stop    func()
}

// bound returns the binding of a session that has a link; the link was made with it.
func bound(session *front.Session) *binding { return session.Attached(nil).(*binding) }

// replaced closes the session's link to an earlier server of b's name. The caller holds mu.
func (d *binding) replaced(b *backend) {
	for _, h := range slices.Clone(d.links) {
		if h.link.b.Name == b.Name {
			d.giveUp(h)
		}
	}
}

// linked returns the session's hold of its link to a server; nil: it has none. The caller holds mu.
func (d *binding) linked(b *backend) *held {
	if i := slices.IndexFunc(d.links, func(h *held) bool { return h.link.b == b }); i >= 0 {
		return d.links[i]
	}
	return nil
}

// giveUp closes the session's link to a server, and keeps its subscriptions for the next one.
// The caller holds mu.
func (d *binding) giveUp(h *held) {
	b := h.link.b
	if uris := h.subscribed(); len(uris) > 0 && b.Builtin == nil {
		d.keep(b.Name, maps.Keys(uris))
	}
	h.close()
	d.links = slices.DeleteFunc(d.links, func(o *held) bool { return o == h })
}

// close stops the watcher, and closes the link when it belongs to this session alone.
func (h *held) close() {
	h.stop()
	if h.link.private() {
		h.link.close()
	}
	h.link.used.Store(time.Now().UnixNano())
}

// opened sets the session's log level on a new connection, if policy lets the session set it
// there. It reports whether the server has accepted it.
func (d *binding) opened(ctx context.Context, b *backend, c *liveConn) bool {
	d.mu.Lock()
	level := d.level
	d.mu.Unlock()
	if level == nil || c.era != front.Legacy || rawjson.GetPath(c.hello, "capabilities", "logging") == nil {
		return false
	}
	x := front.Exchange{Who: d.session.Owner(), Session: d.session, Size: int64(len(level)), SameProgram: d.session.SameProgram()}
	return d.sessions.levels.set(ctx, &x, b, c, level)
}

// deliver hands an event of server b to the session's standalone stream, as
// long as the session may use that server.
func (d *binding) deliver(b *backend, e upstream.Event) {
	if !d.sessions.sight.mayHear(d.session.Owner(), b, e, d.session.SameProgram()) {
		return
	}
	e.Params = withoutListen(e.Params)
	if d.session.Server == "" {
		e.Params = naming.Event(b.Name, e)
	}
	d.session.Notify(e.Method, e.Params)
}

// withoutListen removes the id of Doorward's own listen, which means nothing to a legacy
// client.
func withoutListen(params []byte) []byte {
	meta := rawjson.Get(params, "_meta")
	if rawjson.Get(meta, wire.MetaSubscription) == nil {
		return params
	}
	meta = rawjson.Set(meta, rawjson.Edit{Key: wire.MetaSubscription})
	for range rawjson.Members(meta) {
		return rawjson.Set(params, rawjson.Edit{Key: "_meta", Value: meta})
	}
	return rawjson.Set(params, rawjson.Edit{Key: "_meta"})
}

// all returns the links in use.
func (d *binding) all() []*held {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.links)
}

// listen notes that the client has opened its standalone stream, and opens a listen on each
// open connection. A connection that opens later does so itself. After a pause the servers
// that the session used before are connected again. A client that may have missed changes is
// told to look again.
func (d *binding) listen(x *front.Exchange) {
	d.mu.Lock()
	stale := d.stale || x.Gap
	d.listens, d.stale = true, false
	d.mu.Unlock()
	if stale {
		lookAgain(d)
	}
	d.subscribeAgain(x)
	for _, h := range d.all() {
		h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { w.listens = true })
		if c := h.link.live.Load(); c != nil {
			h.link.hub.opened(c)
		}
	}
}

// announce notifies a legacy session of a change on its standalone stream. Without a stream
// it is told when the client opens one.
func (d *binding) announce(method string) {
	d.mu.Lock()
	listens := d.session.Listening()
	d.stale = d.stale || !listens
	d.mu.Unlock()
	if listens {
		tellChange(d, method)
	}
}

// tellChange notifies the client of a change of a list, if its initialize declared such
// notifications.
func tellChange(d *binding, method string) {
	if d.session.Server == "" || d.promised(method) {
		d.session.Notify(method, nil)
	}
}

// lookAgain tells the client to look again at all lists, and at the resources that it is
// subscribed to. Of those that it is subscribed to again later, setUp tells it.
func lookAgain(d *binding) {
	for method := range subscribe.ListCapability {
		tellChange(d, method)
	}
	for _, h := range d.all() {
		h.doubt(slices.Sorted(maps.Keys(h.subscribed())))
	}
}

// promised reports whether the server of the session's route declares that this list may
// change, or declared it before it was replaced.
func (d *binding) promised(method string) bool {
	servers := []*backend{d.sessions.table.Load().byName[d.session.Server]}
	for _, h := range d.all() {
		servers = append(servers, h.link.b)
	}
	return slices.ContainsFunc(servers, func(b *backend) bool {
		if b == nil {
			return false
		}
		c := b.greeted.Load()
		return c != nil && rawjson.IsTrue(rawjson.GetPath(c.hello, "capabilities", subscribe.ListCapability[method], "listChanged"))
	})
}

// doubt tells the client that resources which it is subscribed to may have changed.
func (h *held) doubt(uris []string) {
	for _, uri := range uris {
		h.watcher.deliver(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(uri)})
	}
}

// Close implements front.Attachment.
func (d *binding) Close() {
	d.leave()
	d.sessions.bindings.Delete(d)
	d.mu.Lock()
	d.closed = true
	links := d.links
	d.links = nil
	d.mu.Unlock()
	for _, h := range links {
		h.close()
	}
}

// heldOf returns the session's hold of a link; nil: it holds the link no longer.
func (d *binding) heldOf(l *link) *held {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.linked(l.b); h != nil && h.link == l {
		return h
	}
	return nil
}

// levelOf returns the log level that the session has set, as raw JSON; nil: none.
func (d *binding) levelOf() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return rawjson.Get(d.level, "level")
}

// subscribed returns the resources that the session is subscribed to.
func (h *held) subscribed() (uris map[string]bool) {
	h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { uris = w.want.URIs })
	return uris
}

// hearsLog reports whether a message is at or above the level that the session has set.
// Without a level it hears every message.
func (d *binding) hearsLog(message []byte) bool {
	least := era.Severity(d.levelOf())
	return least < 0 || era.Severity(rawjson.Get(message, "level")) >= least
}
