package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/gate"
)

// remembered is what a session has set up with its servers, in the form kept for the next run
// of the daemon.
type remembered struct {
	Level     json.RawMessage     `json:"level,omitempty"`     // params of the last logging/setLevel
	Resources map[string][]string `json:"resources,omitempty"` // subscribed to, by server
	Tasks     []ownTask           `json:"tasks,omitempty"`
}

// sessionTasks is how many tasks of one session are kept; the oldest are forgotten.
const sessionTasks = 256

// noteTask keeps a task for the next run of the daemon. No other session keeps it: the server may have
// given out its id before.
func (d *binding) noteTask(server string, key taskKey) {
	d.sessions.bindings.Range(func(k, _ any) bool {
		dropTask(k.(*binding), server, key)
		return true
	})
	d.mu.Lock()
	d.tasks = append(d.tasks, ownTask{server, key[:]})
	d.tasks = d.tasks[max(len(d.tasks)-sessionTasks, 0):]
	d.mu.Unlock()
	d.note()
}

// dropTask forgets a task.
func dropTask(d *binding, server string, key taskKey) {
	d.mu.Lock()
	had := len(d.tasks)
	d.tasks = slices.DeleteFunc(d.tasks, func(t ownTask) bool { return t.Server == server && bytes.Equal(t.Key, key[:]) })
	dropped := len(d.tasks) < had
	d.mu.Unlock()
	if dropped {
		d.note()
	}
}

// recall restores in a new binding what its session had set up in an earlier run.
func (d *binding) recall() {
	var was remembered
	if json.Unmarshal(d.session.Remembered(), &was) != nil {
		return
	}
	d.level, d.tasks = was.Level, was.Tasks
	for server, uris := range was.Resources {
		d.keep(server, slices.Values(uris))
	}
}

// keep notes resources for the next link to their server. The caller holds mu, or no other
// goroutine has the binding.
func (d *binding) keep(server string, uris iter.Seq[string]) {
	if d.kept == nil {
		d.kept = make(map[string]map[string]bool)
	}
	if d.kept[server] == nil {
		d.kept[server] = make(map[string]bool)
	}
	for uri := range uris {
		d.kept[server][uri] = true
	}
}

// note stores what the session has set up so far. A subscription at a built-in server belongs
// to more than the session and is not set up again, so a session that has one ends with the
// daemon.
func (d *binding) note() {
	d.noting.Lock()
	defer d.noting.Unlock()
	builtin := false
	d.mu.Lock()
	now := remembered{Level: d.level, Resources: make(map[string][]string), Tasks: slices.Clone(d.tasks)}
	for server, uris := range d.kept {
		b := d.sessions.table.Load().byName[server]
		builtin = builtin || b != nil && b.Builtin != nil
		now.Resources[server] = slices.Sorted(maps.Keys(uris))
	}
	for _, h := range d.links {
		b := h.link.b
		if uris := h.subscribed(); len(uris) > 0 {
			now.Resources[b.Name] = append(now.Resources[b.Name], slices.Sorted(maps.Keys(uris))...)
			builtin = builtin || b.Builtin != nil
		}
	}
	d.mu.Unlock()
	if builtin {
		d.session.Remember(nil)
		return
	}
	if text, err := json.Marshal(now); err == nil {
		d.session.Remember(text)
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
		return // policy denies what is not configured; the server may be configured again
	}
	with := new(gate.Charge)
	uris := d.awaitedOf(b)
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
// session. It changes nothing if the session has meanwhile unsubscribed or given up the link.
func (d *binding) takesUp(b *backend, h *held, uri string, with *gate.Charge) bool {
	allowed := d.subscribesAgain(b, uri, with)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.linked(b) != h || !d.kept[b.Name][uri] {
		return false
	}
	d.forget(b.Name, uri)
	if allowed {
		h.link.hub.adjust(h.watcher, func(w *watcher) { w.want = w.want.With(uri, true) })
	}
	return allowed
}

// forget drops a kept resource. The caller holds mu.
func (d *binding) forget(server, uri string) {
	delete(d.kept[server], uri)
	if len(d.kept[server]) == 0 {
		delete(d.kept, server)
	}
}

// tell subscribes to resources on an open connection.
func (h *held) tell(ctx context.Context, c *liveConn, uris []string) error {
	if c.era == front.Modern {
		h.link.hub.adjust(h.watcher, func(w *watcher) { w.listens = true })
		_, err := h.link.hub.cover(ctx, h.watcher)
		return err
	}
	subscribeTo(ctx, &h.link.hub, c, slices.Clone(uris))
	return nil
}

// subscribesAgain decides and records a subscription that is set up again: policy may
// have changed since the client asked for it. The subscriptions of one connection share a charge.
func (d *binding) subscribesAgain(b *backend, uri string, with *gate.Charge) bool {
	x := front.Exchange{Who: d.session.Owner(), Session: d.session, SameProgram: d.session.SameProgram()}
	act := d.sessions.acts.of(&x, b.Name, "resources/subscribe", uri)
	act.With = with
	return d.sessions.sight.listens(b, act)
}

// awaited returns the servers whose changes the session misses: those with kept resources,
// and those whose links it gave up.
func (d *binding) awaited() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := maps.Clone(d.rested)
	if all == nil {
		all = make(map[string]bool)
	}
	for server := range d.kept {
		all[server] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// awaitedOf returns the resources that are kept for the next link to a server.
func (d *binding) awaitedOf(b *backend) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.kept[b.Name]))
}

// setLevel keeps the level of a logging/setLevel for servers that are connected later. It
// drops the other params, because they were only checked for this request.
func (d *binding) setLevel(params []byte) {
	d.mu.Lock()
	d.level = rawjson.Set(nil, rawjson.Edit{Key: "level", Value: rawjson.Get(params, "level")})
	d.mu.Unlock()
	d.note()
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
		restLink(d, h)
	}
}

// restLink closes one link of a session that pauses. The caller holds mu.
func restLink(d *binding, h *held) {
	awaits(d, h.link.b.Name)
	d.stale = true // the client does not hear what changes until it comes back
	d.giveUp(h)
}

// awaits notes that the session goes on to use a server when its client listens again. The
// caller holds mu.
func awaits(d *binding, server string) {
	if d.rested == nil {
		d.rested = make(map[string]bool)
	}
	d.rested[server] = true
}
