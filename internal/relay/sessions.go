package relay

import (
	"context"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// of returns the binding of a session, made on first use.
func (s *sessions) of(session *front.Session) *binding {
	return session.Attached(func() front.Attachment {
		d := &binding{usage: usage{session: session}, sessions: s}
		d.memory = memory{usage: &d.usage, table: s.table, kept: make(map[string]map[string]bool), rested: make(map[string]bool)}
		d.stream = stream{usage: &d.usage, table: s.table, sight: s.sight}
		d.memory.recall()
		d.leave = s.audience.Join(subscribe.Ear{Announce: d.stream.announce, Sees: func(server string) bool { return s.sight.onRoute(session.Owner(), session.Server, server) }})
		s.bindings.Store(d, nil)
		return d
	}).(*binding)
}

// linkFor returns the link that serves an exchange.
func (s *sessions) linkFor(x *front.Exchange, b *backend) *link {
	if x.Session == nil {
		return s.links.modern(x, b)
	}
	l, joined := s.of(x.Session).link(b, func() []byte { return s.links.sessionInit(x, b) })
	if c := l.live.Load(); joined && c != nil && c.alive() {
		l.join(x.Session.Context(), c)
	}
	return l
}

// join sets up an open connection for a further session that shares it.
func (l *link) join(ctx context.Context, c *liveConn) {
	if !l.private() {
		l.restoreLevel(ctx, c)
	}
	l.hub.opened(c)
}

// link returns the session's link to b, made on first use with init as the session's
// initialize params. joined: it is new for the session.
func (d *binding) link(b *backend, init func() []byte) (l *link, joined bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.linked(b); h != nil {
		return h.link, false
	}
	d.replaced(b)
	h := &held{watcher: &watcher{want: subscribe.Lists(), listens: d.stream.listens || d.session.Listening(), session: d.session}}
	h.watcher.deliver = func(e upstream.Event) { d.stream.deliver(b, e) }
	h.watcher.sees = func() bool { return d.sessions.sight.visible(d.session.Owner(), b.Name) }
	h.watcher.again = func(uri string, with *gate.Charge) bool { return d.subscribesAgain(b, uri, with) == nil }
	d.place(h, b, init)
	h.stop = h.link.hub.watch(h.watcher)
	d.links = append(d.links, h)
	b.tasks.restore(d.session.Who.Name(), b.Name, d.memory.tasks)
	if d.closed {
		h.close()
	} else if len(d.memory.kept[b.Name]) > 0 || d.memory.rested[b.Name] && h.watcher.listens {
		go d.setUp(b, h)
	}
	delete(d.memory.rested, b.Name)
	return h.link, true
}

// rest closes the links of sessions without a call or an open stream since before: their
// clients are gone or pause. What such a session set up with its servers is set up again when
// it comes back.
func (s *sessions) rest(before time.Time) {
	s.bindings.Range(func(k, _ any) bool {
		k.(*binding).rest(before)
		return true
	})
}

// follow makes the sessions leave the servers that were replaced or removed. Those that listen are
// linked to the servers that have come in their place: a client that only waits for changes would
// not do so.
func (s *sessions) follow() {
	s.bindings.Range(func(k, _ any) bool {
		d := k.(*binding)
		d.leaveReplaced()
		if d.session.Listening() && len(d.memory.awaited()) > 0 {
			go d.subscribeAgain(front.ListeningOf(d.session))
		}
		return true
	})
}

// subscribeAgain links the session to the servers at whose resources it was subscribed in an
// earlier run, and to those that it used before a pause, so that it receives changes before it
// calls anything there.
func (d *binding) subscribeAgain(x *front.Exchange) {
	for _, server := range d.memory.awaited() {
		if b := d.sessions.table.Load().byName[server]; b != nil && d.sessions.sight.visible(x.Who, server) {
			d.sessions.linkFor(x, b)
		}
	}
}
