package relay

import (
	"context"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// binding is what a legacy session holds of the servers: a link for each one
// that it has used. It is closed with the session.
type binding struct {
	r       *Relay
	session *front.Session
	leave   func() // the relay's audience

	mu      sync.Mutex
	links   map[*backend]*held
	level   []byte                     // params of the last logging/setLevel
	kept    map[string]map[string]bool // by server: the resources that it was subscribed to when it gave up its links
	listens bool                       // the client has opened its standalone stream
	closed  bool
}

// held is one link of a session, with the receiver of its events.
type held struct {
	link    *link
	watcher *watcher
	stop    func()
}

// bindingOf is the binding of an exchange's session, made on first use.
func (r *Relay) bindingOf(s *front.Session) *binding {
	return s.Attached(func() front.Attachment { return newBinding(r, s) }).(*binding)
}

func newBinding(r *Relay, s *front.Session) *binding {
	d := &binding{r: r, session: s, links: make(map[*backend]*held)}
	d.recall()
	d.leave = r.audience.Join(d.announce)
	r.bindings.Store(d, nil)
	return d
}

// link returns the session's link to b, made on first use with init as the
// session's initialize params.
func (d *binding) link(b *backend, init func() []byte) *link {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.links[b]; h != nil {
		return h.link
	}
	d.replaced(b)
	h := &held{watcher: &watcher{want: subscribe.Lists(), listens: d.listens || d.session.Listening(), session: d.session}}
	h.watcher.deliver = func(e upstream.Event) { d.deliver(b, e) }
	d.place(h, b, init)
	h.stop = h.link.hub.watch(h.watcher)
	d.links[b] = h
	if d.closed {
		h.close()
	} else if len(d.kept[b.Name]) > 0 {
		go d.setUp(b, h)
	}
	return h.link
}

// replaced lets go of what the session held of an earlier server of b's name.
// The caller holds mu.
func (d *binding) replaced(b *backend) {
	for o, h := range d.links {
		if o.Name == b.Name {
			h.close()
			delete(d.links, o)
		}
	}
}

// close lets go of the link, and ends it when it is the session's own.
func (h *held) close() {
	h.stop()
	if h.link.private() {
		h.link.close()
	}
	h.link.used.Store(time.Now().UnixNano())
}

// opened brings a new connection to the log level of the session, if policy lets
// that session set it there.
func (d *binding) opened(ctx context.Context, b *backend, c *liveConn) {
	d.mu.Lock()
	level := d.level
	d.mu.Unlock()
	if level == nil || c.era != front.Legacy || wire.GetPath(c.hello, "capabilities", "logging") == nil {
		return
	}
	x := front.Exchange{Who: d.session.Owner(), Session: d.session, Size: int64(len(level)), Confirmed: d.session.Confirmed()}
	d.r.setLevel(ctx, &x, b, c, level)
}

// deliver hands an event of server b to the session's standalone stream, as
// long as the session may use that server.
func (d *binding) deliver(b *backend, e upstream.Event) {
	if !d.r.sight.mayHear(d.session.Owner(), b, e, d.session.Confirmed()) {
		return
	}
	e.Params = withoutListen(e.Params)
	if d.session.Server == "" {
		e.Params = naming.Event(b.Name, e)
	}
	d.session.Notify(e.Method, e.Params)
}

// withoutListen removes the id of our own listen, which means nothing to a
// legacy client.
func withoutListen(params []byte) []byte {
	meta := wire.Get(params, "_meta")
	if wire.Get(meta, wire.MetaSubscription) == nil {
		return params
	}
	meta = rawjson.Set(meta, rawjson.Edit{Key: wire.MetaSubscription})
	for range wire.Members(meta) {
		return rawjson.Set(params, rawjson.Edit{Key: "_meta", Value: meta})
	}
	return rawjson.Set(params, rawjson.Edit{Key: "_meta"})
}

// all are the links in use.
func (d *binding) all() []*held {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*held, 0, len(d.links))
	for _, h := range d.links {
		out = append(out, h)
	}
	return out
}

// listen tells the servers that the session listens, once there is a stream for
// their messages. A connection that opens later finds that out by itself.
func (d *binding) listen() {
	d.mu.Lock()
	d.listens = true
	d.mu.Unlock()
	for _, h := range d.all() {
		h.link.hub.adjust(h.watcher, func(w *watcher) { w.listens = true })
		if c := h.link.live.Load(); c != nil {
			h.link.hub.opened(c)
		}
	}
}

// Close implements front.Attachment.
func (d *binding) Close() {
	d.leave()
	d.r.bindings.Delete(d)
	d.mu.Lock()
	d.closed = true
	links := d.links
	d.links = make(map[*backend]*held)
	d.mu.Unlock()
	for _, h := range links {
		h.close()
	}
}

// heldOf is how the session holds a link; nil when it does no longer.
func (d *binding) heldOf(l *link) *held {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.links[l.b]; h != nil && h.link == l {
		return h
	}
	return nil
}

// setLevel keeps the level of a logging/setLevel for servers that are reached later, and
// nothing else of its params: nothing looks at them again.
func (d *binding) setLevel(params []byte) {
	d.mu.Lock()
	d.level = rawjson.Set(nil, rawjson.Edit{Key: "level", Value: wire.Get(params, "level")})
	d.mu.Unlock()
	d.note()
}

// levelOf is the log level that the session has asked for, raw.
func (d *binding) levelOf() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return wire.Get(d.level, "level")
}
