package relay

import (
	"context"
	"sort"
	"sync"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// everything is the filter that Doorward listens with upstream: all kinds of
// change, and the given resources. What a client did not ask for is left out
// on its side.
func everything(uris map[string]bool) []byte {
	return (&filter{tools: true, prompts: true, resources: true, uris: uris}).json()
}

// json is the notifications object of f, in a fixed order.
func (f *filter) json() []byte {
	out := []byte{'{'}
	for _, k := range []struct {
		on   bool
		name string
	}{{f.tools, "toolsListChanged"}, {f.prompts, "promptsListChanged"}, {f.resources, "resourcesListChanged"}} {
		if k.on {
			out = append(comma(out), `"`+k.name+`":true`...)
		}
	}
	if len(f.uris) > 0 {
		uris := make([]string, 0, len(f.uris))
		for u := range f.uris {
			uris = append(uris, u)
		}
		sort.Strings(uris)
		out = append(comma(out), `"resourceSubscriptions":[`...)
		for i, u := range uris {
			if i > 0 {
				out = append(out, ',')
			}
			out = wire.AppendQuote(out, u)
		}
		out = append(out, ']')
	}
	return append(out, '}')
}

func comma(b []byte) []byte {
	if len(b) > 1 {
		return append(b, ',')
	}
	return b
}

// parseFilter reads a notifications object.
func parseFilter(raw []byte) *filter {
	f := &filter{uris: make(map[string]bool)}
	f.tools = isTrue(wire.Get(raw, "toolsListChanged"))
	f.prompts = isTrue(wire.Get(raw, "promptsListChanged"))
	f.resources = isTrue(wire.Get(raw, "resourcesListChanged"))
	for u := range wire.Elements(wire.Get(raw, "resourceSubscriptions")) {
		if uri, ok := wire.Text(u); ok {
			f.uris[uri] = true
		}
	}
	return f
}

// both keeps what f asked for and granted gives.
func (f *filter) both(granted []byte) *filter {
	g := parseFilter(granted)
	out := &filter{tools: f.tools && g.tools, prompts: f.prompts && g.prompts, resources: f.resources && g.resources, uris: make(map[string]bool)}
	for u := range f.uris {
		if g.uris[u] {
			out.uris[u] = true
		}
	}
	return out
}

// subscription is one client's subscriptions/listen: events wait in a short
// queue until the exchange's own goroutine writes them. A change that is
// already waiting is not queued twice, since it says only "look again".
type subscription struct {
	id   wire.ID
	mu   sync.Mutex
	wait []upstream.Event
	wake chan struct{}
}

// queued is how many different events may wait for a slow client.
const queued = 256

func (s *subscription) put(e upstream.Event) {
	s.mu.Lock()
	for _, w := range s.wait {
		if w.Method == e.Method && string(wire.Get(w.Params, "uri")) == string(wire.Get(e.Params, "uri")) {
			s.mu.Unlock()
			return
		}
	}
	if len(s.wait) < queued {
		s.wait = append(s.wait, keepEvent(e))
	}
	s.mu.Unlock()
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
	return wire.SetIn(params, "_meta", wire.Edit{Key: wire.MetaSubscription, Value: s.id})
}

// subscribe serves subscriptions/listen on one server or on all of them.
func (r *Relay) subscribe(ctx context.Context, x *front.Exchange, servers []*backend) front.Reply {
	want := wire.Get(x.Params, "notifications")
	if len(want) == 0 || want[0] != '{' {
		return front.Reply{Error: errParams}
	}
	sub := &subscription{id: x.ID, wake: make(chan struct{}, 1)}
	var passes []gate.Pass
	defer func() {
		for _, p := range passes {
			r.gate.Leave(p, "ended", 0)
		}
	}()
	granted := &filter{uris: make(map[string]bool)}
	for _, b := range servers {
		pass, err := r.gate.Enter(r.act(x, b.Name, x.Method, ""))
		if err != nil {
			if x.Server != "" {
				return r.refused(err)
			}
			continue
		}
		passes = append(passes, pass)
		stop := r.hear(ctx, x, b, parseFilter(want), sub, granted)
		defer stop()
	}
	x.StartStream()
	ack := append([]byte(`{"notifications":`), granted.json()...)
	x.Notify("notifications/subscriptions/acknowledged", sub.tag(append(ack, '}')))
	return r.pass(ctx, x, sub)
}

// hear adds one server to a subscription: what it honours goes into granted,
// in the client's names. A server that is down honours nothing.
func (r *Relay) hear(ctx context.Context, x *front.Exchange, b *backend, want *filter, sub *subscription, granted *filter) (stop func()) {
	aggregate := x.Server == ""
	mine := *want
	mine.uris = make(map[string]bool)
	for uri := range want.uris {
		if plain, ok := plainURI(aggregate, b.Name, uri); ok && r.mayRead(x, b, plain) {
			mine.uris[plain] = true
		}
	}
	w := &watcher{want: &mine, deliver: func(e upstream.Event) {
		if aggregate {
			e.Params = prefixEvent(b.Name, e)
		}
		sub.put(e)
	}}
	l := b.pooled(r, x.Who, front.Modern)
	stop = l.hub.watch(w)
	honoured, err := l.hub.cover(ctx, w)
	if err != nil {
		r.log.Warn("listening to server failed", "server", b.Name, "err", err)
		return stop
	}
	got := mine.both(honoured)
	granted.tools = granted.tools || got.tools
	granted.prompts = granted.prompts || got.prompts
	granted.resources = granted.resources || got.resources
	for uri := range got.uris {
		granted.uris[clientURI(aggregate, b.Name, uri)] = true
	}
	return stop
}

func (r *Relay) mayRead(x *front.Exchange, b *backend, uri string) bool {
	return r.gate.Allows(policy.Request{Who: x.Who, Action: "resources/read", Server: b.Name, Name: uri}).Allow
}

// pass writes events until the client leaves or Doorward stops; then it says
// so, and answers (Cancellation; Subscriptions, "Graceful Closure").
func (r *Relay) pass(ctx context.Context, x *front.Exchange, sub *subscription) front.Reply {
	for {
		select {
		case <-sub.wake:
			for _, e := range sub.take() {
				x.Notify(e.Method, sub.tag(e.Params))
			}
		case <-ctx.Done():
			return front.Reply{None: true}
		case <-r.closing.Done():
			params := append([]byte(`{"requestId":`), x.ID...)
			x.Notify("notifications/cancelled", sub.tag(append(params, '}')))
			return front.Reply{Result: sub.tag([]byte(`{"resultType":"complete"}`))}
		}
	}
}
