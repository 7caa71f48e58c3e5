package relay

import (
	"sync"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// binding is what a legacy session holds of the servers: a link for each one
// that it has used. It is closed with the session.
type binding struct {
	r       *Relay
	session *front.Session

	mu      sync.Mutex
	links   map[*backend]*held
	level   []byte // params of the last logging/setLevel on the aggregate
	listens bool   // the client has its standalone stream open
	closed  bool
}

// held is one link of a session, and how to stop hearing its events.
type held struct {
	*link
	watcher *watcher
	stop    func()
}

func newBinding(r *Relay, s *front.Session) *binding {
	return &binding{r: r, session: s, links: make(map[*backend]*held)}
}

// link returns the session's link to b, made on first use with init as the
// session's initialize params.
func (d *binding) link(b *backend, init []byte) *link {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.links[b]; h != nil {
		return h.link
	}
	var l *link
	if b.perSession() {
		l = newLink(d.r, b, d.session.Who, front.Legacy)
		l.init = init
		l.opened = func(c *liveConn) { d.opened(l, c) }
	} else {
		l = b.pooled(d.r, d.session.Who, front.Legacy)
	}
	w := &watcher{session: d.session, deliver: func(e upstream.Event) { d.deliver(b, e) }}
	stop := l.hub.watch(w)
	d.links[b] = &held{link: l, watcher: w, stop: stop}
	if d.closed {
		stop()
		if !l.shared {
			go l.close()
		}
	}
	return l
}

// opened brings a new connection to where the session stands: its stream and
// its log level.
func (d *binding) opened(l *link, c *liveConn) {
	if c.era == front.Modern {
		d.hearModern(l)
		return
	}
	d.mu.Lock()
	listens, level := d.listens, d.level
	d.mu.Unlock()
	if listens {
		c.conn.Listen()
	}
	if level == nil || wire.GetPath(c.hello, "capabilities", "logging") == nil {
		return
	}
	req := upstream.Request{Method: "logging/setLevel", Params: level}
	if _, err := c.conn.Call(d.session.Context(), &req, nil); err != nil {
		d.r.log.Debug("setting the log level failed", "err", err)
	}
}

// deliver hands an event of server b to the session's standalone stream.
func (d *binding) deliver(b *backend, e upstream.Event) {
	if wire.GetPath(e.Params, "_meta", wire.MetaSubscription) != nil { // our own listen's id
		e.Params = wire.SetIn(e.Params, "_meta", wire.Edit{Key: wire.MetaSubscription})
	}
	if d.session.Server == "" {
		e.Params = prefixEvent(b.Name, e)
	}
	d.session.Notify(e.Method, e.Params)
}

// all are the links in use.
func (d *binding) all() []*link {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*link, 0, len(d.links))
	for _, h := range d.links {
		out = append(out, h.link)
	}
	return out
}

// listen opens the servers' own standalone streams, now that there is
// somewhere for their messages to go.
func (d *binding) listen() {
	d.mu.Lock()
	d.listens = true
	d.mu.Unlock()
	for _, l := range d.all() {
		if c := l.live.Load(); c != nil {
			c.conn.Listen()
		}
	}
}

// Close implements front.Attachment.
func (d *binding) Close() {
	d.mu.Lock()
	d.closed = true
	links := d.links
	d.links = make(map[*backend]*held)
	d.mu.Unlock()
	for _, h := range links {
		h.stop()
		if !h.shared {
			h.link.close()
		}
	}
}

// bindingOf is the binding of an exchange's session, made on first use.
func (r *Relay) bindingOf(s *front.Session) *binding {
	return s.Attached(func() front.Attachment { return newBinding(r, s) }).(*binding)
}
