package relay

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// ackTime is how long the acknowledgement of a listen on the aggregate waits for
// servers. A slower server is still listened to, and the client is told to list
// again.
const ackTime = 5 * time.Second

// queued is how many different events may wait for a slow client.
const queued = 256

// maxObjects bounds the resources and tasks of one listen: each has a record of its own.
const maxObjects = 1000

// subscription is one client's subscriptions/listen: events wait in a short
// queue until the exchange's own goroutine writes them. A change that is
// already waiting is not queued twice, since it says only "look again".
type subscription struct {
	r    *Relay
	x    *front.Exchange
	want *subscribe.Filter // in the client's names
	caps []byte            // of the client
	wake chan struct{}
	end  func() // it is over, for its client to begin again; set before ears open

	mu      sync.Mutex
	wait    []upstream.Event
	cut     bool              // something found no room
	granted *subscribe.Filter // in the client's names, until acked
	acked   bool
}

func (s *subscription) put(e upstream.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wait {
		if protocol.IsChange(e.Method) && w.Method == e.Method && string(wire.Get(w.Params, "uri")) == string(wire.Get(e.Params, "uri")) {
			return
		}
	}
	if len(s.wait) >= queued {
		if !s.cut {
			s.r.log.Warn("a client reads its changes too slowly: some are dropped", "principal", s.x.Who.Name())
		}
		s.cut = true
		return
	}
	s.wait = append(s.wait, e)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) take() []upstream.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.wait
	s.wait = nil
	return out
}

// tag puts the id of the client's own listen request on a notification.
func (s *subscription) tag(params []byte) []byte {
	return rawjson.SetIn(params, "_meta", rawjson.Edit{Key: wire.MetaSubscription, Value: s.x.ID})
}

// ear is a subscription's receiver for one server.
type ear struct {
	sub  *subscription
	b    *backend
	link *link
	w    *watcher
	pass gate.Pass
	stop func()
	left bool // the outcome is recorded
	// tasks are the client's ids by the server's.
	tasks map[string]string
}

// subscribe serves subscriptions/listen on one server or on all of them.
func (r *Relay) subscribe(ctx context.Context, x *front.Exchange, servers []*backend) front.Reply {
	want := wire.Get(x.Params, "notifications")
	switch {
	case x.Era != front.Modern:
		return front.Reply{Error: failure.NoMethod}
	case len(want) == 0 || want[0] != '{':
		return front.Reply{Error: failure.Params}
	}
	act := r.acts.of(x, x.Server, x.Method, "")
	params, ok := r.leaving.search(act, x.Params)
	if !ok {
		return r.leaving.refused(act)
	}
	heard := subscribe.ParseFilter(wire.Get(params, "notifications"))
	if heard.Named() > maxObjects {
		return front.Reply{Error: failure.Params}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &subscription{r: r, x: x, want: heard, caps: bytes.Clone(question.InCall(x).Caps), wake: make(chan struct{}, 1),
		granted: &subscribe.Filter{URIs: make(map[string]bool), Tasks: make(map[string]bool)}}
	defer r.audience.Join(s.announce)()
	var ears []*ear
	with := new(gate.Charge)
	for _, b := range servers {
		e, err := s.listenTo(ctx, b, with)
		if err != nil && (x.Server != "" || failure.OwnLimit(err)) {
			return r.failures.refused(err)
		}
		if err == nil {
			ears = append(ears, e)
			defer e.close()
		}
	}
	life := r.closing
	if x.Server != "" {
		life = ears[0].link.ctx
	}
	over, end := context.WithCancel(life)
	defer end()
	s.end = end
	if x.Server == "" {
		s.openAll(ctx, ears)
	} else if err := ears[0].open(ctx); err != nil {
		return ears[0].fail(ctx, err)
	}
	return s.serve(ctx, over.Done())
}

// listenTo adds one server, if policy lets the client listen to it. A resource
// that the client may not read is left out.
func (s *subscription) listenTo(ctx context.Context, b *backend, with *gate.Charge) (*ear, error) {
	x, r := s.x, s.r
	act := r.acts.of(x, b.Name, x.Method, "")
	act.Kind, act.With = gate.Stream, with
	room := b.traffic.enterStream(b.MaxStreams)
	if !room {
		act.Over = failure.CapOf(b.Name, "max_streams")
	}
	pass, err := r.watch.traces().decide(ctx, r.gate, act)
	if err != nil {
		if room {
			b.traffic.leaveStream()
		}
		return nil, err
	}
	e := &ear{sub: s, b: b, pass: pass, link: modernLink(r, x, b), tasks: make(map[string]string)}
	mine := *s.want
	mine.URIs, mine.Tasks = make(map[string]bool), make(map[string]bool)
	if x.Server == "" || e.link.who == nil {
		mine.Rest = nil // it may name anything of any server, and what comes of it is another principal's too
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
	e.stop = e.link.hub.watch(e.w)
	return e, nil
}

// enters decides and records one resource of a listen. A caller that may not read
// a resource is not told of its changes.
func (s *subscription) enters(b *backend, t resolve.Target, with *gate.Charge) bool {
	act := s.r.acts.on(s.x, t)
	act.With = with
	return s.r.sight.listens(b, act)
}

// task finds the server's own id of a task that the client may hear of, which is one
// that its principal has made.
func (s *subscription) task(b *backend, id string, with *gate.Charge) (inner string, ok bool) {
	params := rawjson.Set(nil, rawjson.Edit{Key: "taskId", Value: rawjson.AppendQuote(nil, id)})
	t, err := resolve.Request(s.x.Server, "tasks/get", wire.IntID(0), params)
	if err != nil || t.Server() != b.Name {
		return "", false
	}
	raw, err := s.r.seal.OpenTask(wire.Get(t.Params(), "taskId"), s.x.Who, b.Name)
	if err != nil {
		return "", false
	}
	act := s.r.acts.on(s.x, t)
	act.Kind, act.With = gate.Stream, with
	pass, err := s.r.gate.Enter(act)
	if err != nil {
		return "", false
	}
	pass.Leave("ok", 0)
	return wire.Text(raw)
}

func (e *ear) close() {
	e.stop()
	e.b.traffic.leaveStream()
	if !e.left {
		e.pass.Leave("ended", 0)
	}
}

// fail ends a listen that its server did not take.
func (e *ear) fail(ctx context.Context, err error) front.Reply {
	e.left = true
	return e.sub.r.failures.fail(ctx, e.b.Name, e.pass, err)
}

// deliver queues an event, if policy still lets the client have it.
func (e *ear) deliver(ev upstream.Event) {
	x := e.sub.x
	if !e.sub.r.sight.mayHear(x.Who, e.b, ev, x.Confirmed) {
		return
	}
	switch {
	case ev.Method == protocol.TaskChanged:
		if !e.ofTask(&ev) {
			return
		}
	case x.Server == "":
		ev.Params = naming.Event(e.b.Name, ev)
	}
	e.sub.put(ev)
}

// ofTask puts a notification about a task into the client's words. False: the client
// may not have its questions.
func (e *ear) ofTask(ev *upstream.Event) bool {
	x := e.sub.x
	to := question.Client{X: front.Exchange{Who: x.Who, Confirmed: x.Confirmed, Delivery: x.Delivery}, Caps: e.sub.caps}
	if !e.link.asks.questions.passes(func() question.Client { return to }, ev) {
		return false
	}
	inner, _ := wire.GetString(ev.Params, "taskId")
	if x.Server == "" {
		ev.Params = naming.Server(e.b.Name).Result("tasks/get", ev.Params)
	}
	ev.Params = rawjson.Set(ev.Params, rawjson.Edit{Key: "taskId", Value: rawjson.AppendQuote(nil, e.tasks[inner])})
	return true
}

// open waits until the server listens for this subscription, and records what it
// honours. When the acknowledgement has been sent, the client is told to list
// again instead.
func (e *ear) open(ctx context.Context) error {
	got, err := e.cover(ctx)
	if err != nil {
		return err
	}
	s := e.sub
	s.mu.Lock()
	late := s.acked
	if !late {
		g := s.granted
		g.Tools, g.Prompts, g.Resources = g.Tools || got.Tools, g.Prompts || got.Prompts, g.Resources || got.Resources
		for uri := range got.URIs {
			g.URIs[naming.URI(s.x.Server == "", e.b.Name, uri)] = true
		}
		for id := range got.Tasks {
			g.Tasks[e.tasks[id]] = true
		}
		g.Rest = got.Rest
	}
	s.mu.Unlock()
	for _, m := range []string{protocol.ToolsChanged, protocol.PromptsChanged, protocol.ResourcesChanged} {
		if late && s.want.Wants(m, nil) {
			s.put(upstream.Event{Method: m})
		}
	}
	return nil
}

// openAll opens all servers at once and returns when it is time for the
// acknowledgement. That a list changes the aggregate can say of every kind,
// since a server that comes up later changes them.
func (s *subscription) openAll(ctx context.Context, ears []*ear) {
	s.granted.Tools, s.granted.Prompts, s.granted.Resources = s.want.Tools, s.want.Prompts, s.want.Resources
	settled := make(chan struct{}, len(ears))
	for _, e := range ears {
		go e.persist(ctx, settled)
	}
	limit := time.NewTimer(ackTime)
	defer limit.Stop()
	for range ears {
		select {
		case <-settled:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// persist opens one server, again and again until it is up. The first outcome
// settles what the acknowledgement waits for.
func (e *ear) persist(ctx context.Context, settled chan<- struct{}) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := e.open(ctx)
		if settled != nil {
			settled <- struct{}{}
			settled = nil
		}
		if err == nil {
			return
		}
		e.sub.r.log.Debug("listening to server failed", "server", e.b.Name, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		case <-e.link.ctx.Done():
			return
		}
	}
}

// serve acknowledges, and writes events until the client leaves or what it
// listens to is no more; then it says so, and answers (Cancellation;
// Subscriptions, "Graceful Closure").
func (s *subscription) serve(ctx context.Context, gone <-chan struct{}) front.Reply {
	s.mu.Lock()
	s.acked = true
	ack := append([]byte(`{"notifications":`), s.granted.JSON()...)
	s.mu.Unlock()
	s.x.StartStream()
	s.x.Notify("notifications/subscriptions/acknowledged", s.tag(append(ack, '}')))
	write := func() {
		for _, e := range s.take() {
			s.x.Notify(e.Method, s.tag(e.Params))
		}
	}
	for {
		select {
		case <-s.wake:
			write()
		case <-ctx.Done():
			return front.Reply{None: true}
		case <-gone:
			write() // what was told before it ended
			params := append([]byte(`{"requestId":`), s.x.ID...)
			s.x.Notify("notifications/cancelled", s.tag(append(params, '}')))
			return front.Reply{Result: s.tag([]byte(`{"resultType":"complete"}`))}
		}
	}
}
