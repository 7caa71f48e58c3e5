package relay

import (
	"bytes"
	"context"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// ackTime is how long the acknowledgement of a listen on the aggregate waits for
// servers. A slower server is still listened to, and the client is told to list
// again.
const ackTime = 5 * time.Second

// maxObjects bounds the resources and tasks of one listen, and the subscriptions of one
// session: each has a record of its own.
const maxObjects = 1000

// serve serves subscriptions/listen on one server or on all of them.
func (k *listens) serve(ctx context.Context, x *front.Exchange, servers []*backend) front.Reply {
	want := rawjson.Get(x.Params, "notifications")
	switch {
	case x.Era != front.Modern:
		return front.Reply{Error: failure.NoMethod}
	case len(want) == 0 || want[0] != '{':
		return front.Reply{Error: failure.Params}
	}
	act := k.acts.of(x, x.Server, x.Method, "")
	params, ok := k.leaving.search(act, x.Params)
	if !ok {
		return k.leaving.refused(act)
	}
	heard := subscribe.ParseFilter(rawjson.Get(params, "notifications"))
	if heard.Named() > maxObjects {
		return front.Reply{Error: failure.Params}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, end := context.WithCancel(k.closing)
	defer end()
	s := &subscription{from: k, x: x, servers: servers, want: heard, caps: bytes.Clone(question.InCall(x).Caps), wake: make(chan struct{}, 1), end: end,
		granted: &subscribe.Filter{URIs: make(map[string]bool), Tasks: make(map[string]bool)}}
	defer k.join(s)()
	var ears []*ear
	with := new(gate.Charge)
	for _, b := range servers {
		e, err := s.listenTo(ctx, b, with)
		if err != nil && (x.Server != "" || failure.OwnLimit(err)) {
			return k.failures.refused(err)
		}
		if err == nil {
			ears = append(ears, e)
			defer e.close()
		}
	}
	if x.Server == "" {
		s.openAll(ctx, ears)
		return s.stream(ctx, over.Done())
	}
	defer context.AfterFunc(ears[0].link.ctx, end)()
	if err := ears[0].open(ctx); err != nil {
		return ears[0].fail(ctx, err)
	}
	return s.stream(ctx, over.Done())
}

// join makes a subscription hear of changes of the servers and of the policy, until leave.
func (k *listens) join(s *subscription) (leave func()) {
	out := k.audience.Join(subscribe.Ear{Announce: s.announce, Sees: func(server string) bool { return k.sight.onRoute(s.x.Who, s.x.Server, server) }})
	k.open.Store(s, nil)
	s.renew() // the servers may have changed since they were looked up
	return func() {
		k.open.Delete(s)
		out()
	}
}

// renew ends the listens on the aggregate whose clients may use other servers by now.
func (k *listens) renew() {
	k.open.Range(func(s, _ any) bool {
		s.(*subscription).renew()
		return true
	})
}

// listenTo adds one server, if policy lets the client listen to it. A resource that the
// client may not read is left out.
func (s *subscription) listenTo(ctx context.Context, b *backend, with *gate.Charge) (*ear, error) {
	x, k := s.x, s.from
	act := k.acts.of(x, b.Name, x.Method, "")
	act.Kind, act.With = gate.Stream, with
	room := b.traffic.enterStream(b.MaxStreams)
	if !room {
		act.Over = failure.CapOf(b.Name, "max_streams")
	}
	pass, err := k.watch.traces().decide(ctx, k.gate, &act)
	if err != nil {
		if room {
			b.traffic.leaveStream()
		}
		return nil, err
	}
	e := &ear{sub: s, b: b, pass: pass, link: k.links.modern(x, b), tasks: make(map[string]string)}
	mine := *s.want
	mine.URIs, mine.Tasks = make(map[string]bool), make(map[string]bool)
	if x.Server == "" || e.link.who == nil {
		mine.Rest = nil // it may name anything at any server, and its events may concern another principal
	}
	for uri := range s.want.URIs {
		if t, err := resolve.Listed(x.Server, uri); err == nil && t.Server() == b.Name && s.enters(b, t, with) {
			mine.URIs[t.Name()] = true
		}
	}
	for id := range s.want.Tasks {
		if inner, ok := s.task(b, id, with); ok {
			mine.Tasks[inner], e.tasks[inner] = true, id
		}
	}
	e.w = &watcher{want: &mine, listens: b.Builtin == nil, deliver: e.deliver}
	e.w.sees = func() bool { return k.sight.visible(x.Who, b.Name) }
	e.stop = e.link.hub.watch(e.w)
	return e, nil
}

// enters decides and records one resource of a listen. A caller that may not read
// a resource is not told of its changes.
func (s *subscription) enters(b *backend, t resolve.Target, with *gate.Charge) bool {
	act := s.from.acts.on(s.x, t)
	act.With = with
	return s.from.sight.listens(b, act) == nil
}

// task finds the server's own id of a task that the client may hear of: one that its
// principal has made.
func (s *subscription) task(b *backend, id string, with *gate.Charge) (inner string, ok bool) {
	params := rawjson.Set(nil, rawjson.Edit{Key: "taskId", Value: rawjson.AppendQuote(nil, id)})
	t, err := resolve.Request(s.x.Server, "tasks/get", wire.IntID(0), params)
	if err != nil || t.Server() != b.Name {
		return "", false
	}
	raw, err := s.from.seal.OpenTask(rawjson.Get(t.Params(), "taskId"), s.x.Who, b.Name)
	if err != nil {
		return "", false
	}
	act := s.from.acts.on(s.x, t)
	act.Kind, act.With = gate.Stream, with
	pass, err := s.from.gate.Enter(act)
	if err != nil {
		return "", false
	}
	pass.Leave("ok", 0)
	return wire.Text(raw)
}

// openAll opens all servers at once and returns when it is time for the acknowledgement. The
// aggregate grants changes of every kind of list, because a server that connects later
// changes them. A server that the configuration adds ends the listen, see renew.
func (s *subscription) openAll(ctx context.Context, ears []*ear) {
	s.mu.Lock()
	s.granted.Tools, s.granted.Prompts, s.granted.Resources = s.want.Tools, s.want.Prompts, s.want.Resources
	s.mu.Unlock()
	settled := make(chan struct{}, len(ears))
	for _, e := range ears {
		go e.persist(ctx, settled)
	}
	limit := time.After(ackTime)
	for range ears {
		select {
		case <-settled:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}
