package relay

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// binding is what the relay keeps for one legacy session: the links that it uses, what it has set
// up with their servers, and how its client hears of changes. It is closed with the session.
type binding struct {
	usage
	memory   memory
	stream   stream
	sessions *sessions
	leave    func() // leaves the audience
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

// giveUp closes the session's link to a server, and keeps its subscriptions for the next one.
// The caller holds mu.
func (d *binding) giveUp(h *held) {
	b := h.link.b
	if uris := h.subscribed(); len(uris) > 0 && b.Builtin == nil {
		d.memory.keep(b.Name, maps.Keys(uris))
	}
	h.close()
	d.links = slices.DeleteFunc(d.links, func(o *held) bool { return o == h })
}

// rest closes every link of the session, except a private one with a call in flight and those
// to built-in servers: these need no process, and take the end of a link for the end of the
// session. It does nothing if the session has been in use since before: a stream that is opened
// later finds the links closed.
func (d *binding) rest(before time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if since, idle := d.session.IdleSince(); !idle || !since.Before(before) {
		return
	}
	for _, h := range slices.Clone(d.links) {
		b := h.link.b
		if b.Builtin != nil || h.link.calls.Load() > 0 && h.link.private() {
			continue
		}
		d.restLink(h)
	}
}

// restLink closes one link of a session that pauses. The caller holds mu.
func (d *binding) restLink(h *held) {
	d.memory.rested[h.link.b.Name] = true
	d.stream.stale = true // the client does not hear what changes until it comes back
	d.giveUp(h)
}

// leaveReplaced gives up the links of a session to servers that were replaced or removed.
func (d *binding) leaveReplaced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range slices.Clone(d.links) {
		if b := h.link.b; d.sessions.table.Load().byName[b.Name] != b {
			d.memory.rested[b.Name] = true
			d.giveUp(h)
		}
	}
}

// opened sets the session's log level on a new connection, if policy lets the session set it
// there. It reports whether the server has accepted it.
func (d *binding) opened(ctx context.Context, b *backend, c *liveConn) bool {
	d.mu.Lock()
	level := d.memory.level
	d.mu.Unlock()
	if level == nil || c.era != front.Legacy || rawjson.GetPath(c.hello, "capabilities", "logging") == nil {
		return false
	}
	x := front.Exchange{Who: d.session.Owner(), Session: d.session, Size: int64(len(level)), SameProgram: d.session.SameProgram()}
	return d.sessions.levels.set(ctx, &x, b, c, level)
}

// listen notes that the client has opened its standalone stream, and opens a listen on each
// open connection. A connection that opens later does so itself. After a pause the servers
// that the session used before are connected again. A client that may have missed changes is
// told to look again.
func (d *binding) listen(x *front.Exchange) {
	d.stream.opened(x.Gap)
	d.leaveReplaced()
	d.subscribeAgain(x)
	for _, h := range d.all() {
		h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { w.listens = true })
		if c := h.link.live.Load(); c != nil {
			h.link.hub.opened(c)
		}
	}
}

// setUp connects a session with a new link, and subscribes it to the resources that it was
// subscribed to on an earlier one. They may have changed meanwhile, and the client is told so.
// Later connections of the link restore them like any other.
func (d *binding) setUp(b *backend, h *held) {
	ctx, cancel := context.WithTimeout(d.session.Context(), dialTime)
	defer cancel()
	c, err := h.link.get(ctx) // also without resources: the connection reports changes of lists
	if errors.Is(err, failure.ErrGone) {
		return
	}
	with := new(gate.Charge)
	uris := d.memory.awaitedOf(b)
	uris = slices.DeleteFunc(uris, func(uri string) bool { return !d.takesUp(b, h, uri, with) })
	if err == nil && len(uris) > 0 {
		err = h.tell(ctx, c, uris)
		h.doubt(uris)
	}
	if err != nil && ctx.Err() == nil {
		d.sessions.log.Warn("the subscriptions of a session wait for the next connection", "server", b.Name, "err", err)
	}
	if c == nil {
		h.link.hub.await()
	}
}

// takesUp makes a kept resource one that the link is subscribed to, if policy still lets the
// session, and forgets it if policy does not. It changes nothing if the session has meanwhile
// unsubscribed or given up the link, or if the refusal is for now.
func (d *binding) takesUp(b *backend, h *held, uri string, with *gate.Charge) bool {
	refused := d.subscribesAgain(b, uri, with)
	d.mu.Lock()
	defer d.mu.Unlock()
	if forNow(refused) || d.linked(b) != h || !d.memory.kept[b.Name][uri] {
		return false
	}
	d.memory.forget(b.Name, uri)
	if refused == nil {
		h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { w.want = w.want.With(uri, true) })
	}
	return refused == nil
}

// forNow reports whether a refusal says nothing against the act at a later time: its record failed,
// a limit was reached, the resource may be approved, or the server was removed and may be configured
// again.
func forNow(refused error) bool {
	var r *gate.Refusal
	return refused != nil && (!errors.As(refused, &r) || r.Code != gate.CodeDenied || r.Rule == policy.RuleUnknownServer || strings.HasPrefix(r.Rule, pin.RulePrefix))
}

// tell subscribes to resources on an open connection.
func (h *held) tell(ctx context.Context, c *liveConn, uris []string) error {
	if c.era == front.Modern {
		h.link.hub.watchers.adjust(h.watcher, func(w *watcher) { w.listens = true })
		_, err := h.link.hub.cover(ctx, h.watcher)
		return err
	}
	h.link.hub.subscribe(ctx, c, slices.Clone(uris))
	return nil
}

// subscribesAgain decides and records a subscription that is set up again: policy may
// have changed since the client asked for it. The subscriptions of one connection share a charge.
func (d *binding) subscribesAgain(b *backend, uri string, with *gate.Charge) error {
	x := front.Exchange{Who: d.session.Owner(), Session: d.session, SameProgram: d.session.SameProgram()}
	act := d.sessions.acts.of(&x, b.Name, "resources/subscribe", uri)
	act.With = with
	return d.sessions.sight.listens(b, act)
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

// noteTask keeps a task for the next run of the daemon. No other session keeps it: the server may have
// given out its id before.
func (d *binding) noteTask(server string, key taskKey) {
	d.sessions.bindings.Range(func(k, _ any) bool {
		k.(*binding).memory.dropTask(server, key)
		return true
	})
	d.mu.Lock()
	tasks := append(d.memory.tasks, ownTask{server, key[:]})
	d.memory.tasks = tasks[max(len(tasks)-sessionTasks, 0):]
	d.mu.Unlock()
	d.memory.note()
}

// stream tells the client of a legacy session of changes, on its standalone stream. A client
// that may have missed one is told to look again when it opens the stream. The lock of usage
// guards the fields: no link is closed for a pause while a client opens its stream.
type stream struct {
	usage   *usage
	table   *atomic.Pointer[table]
	sight   *sight
	listens bool // the client has opened it
	stale   bool // the client was not told of a change, because it was not open
}

// opened notes that the client has opened its stream. gap: it may have missed messages there.
func (s *stream) opened(gap bool) {
	s.usage.mu.Lock()
	stale := s.stale || gap
	s.listens, s.stale = true, false
	s.usage.mu.Unlock()
	if stale {
		s.lookAgain()
	}
}

// deliver hands an event of server b to the session's standalone stream, as
// long as the session may use that server.
func (s *stream) deliver(b *backend, e upstream.Event) {
	session := s.usage.session
	if !s.sight.mayHear(session.Owner(), b, e, session.SameProgram()) {
		return
	}
	e.Params = withoutListen(e.Params)
	if session.Server == "" {
		e.Params = naming.Event(b.Name, e)
	}
	session.Notify(e.Method, e.Params)
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

// announce notifies a legacy session of a change on its standalone stream. Without a stream
// it is told when the client opens one.
func (s *stream) announce(method string) {
	s.usage.mu.Lock()
	listens := s.usage.session.Listening()
	s.stale = s.stale || !listens
	s.usage.mu.Unlock()
	if listens {
		s.change(method)
	}
}

// change notifies the client of a change of a list, if its initialize declared such
// notifications.
func (s *stream) change(method string) {
	if s.usage.session.Server == "" || s.promised(method) {
		s.usage.session.Notify(method, nil)
	}
}

// lookAgain tells the client to look again at all lists, and at the resources that it is
// subscribed to. Of those that it is subscribed to again later, setUp tells it.
func (s *stream) lookAgain() {
	for method := range subscribe.ListCapability {
		s.change(method)
	}
	for _, h := range s.usage.all() {
		h.doubt(slices.Sorted(maps.Keys(h.subscribed())))
	}
}

// promised reports whether the server of the session's route declares that this list may
// change, or declared it before it was replaced.
func (s *stream) promised(method string) bool {
	servers := []*backend{s.table.Load().byName[s.usage.session.Server]}
	for _, h := range s.usage.all() {
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
