package instruct

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// urisKept is how many resources a connection can be subscribed to.
const urisKept = 256

// subscribe begins or ends the push for a resource on a legacy session's stream.
// That there is no text of that name now is not said: there may be one later.
func (c *conn) subscribe(r *upstream.Request) upstream.Reply {
	uri, _ := wire.GetString(r.Params, "uri")
	if _, ok := nameAt(uri); !ok {
		return upstream.Reply{Error: errNoURI}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Method == "resources/unsubscribe":
		delete(c.subs, uri)
	case len(c.subs) >= urisKept && !c.subs[uri]:
		return upstream.Reply{Error: errTooMany}
	default:
		c.subs[uri] = true
	}
	return upstream.Reply{Result: []byte("{}")}
}

// uris are all that somebody listens for. The caller holds mu.
func (c *conn) uris() []string {
	all := maps.Clone(c.subs)
	for l := range c.listens {
		maps.Copy(all, l.uris)
	}
	return slices.Sorted(maps.Keys(all))
}

// listen is one subscriptions/listen. What it is to say waits for the goroutine
// of its call; a change that waits already is not put twice.
type listen struct {
	prompts, resources bool
	uris               map[string]bool
	wake               chan struct{}

	mu   sync.Mutex
	wait []upstream.Event
}

// listens numbers the listens: the id of one is ours, not the client's.
var listens atomic.Int64

// listen serves subscriptions/listen until ctx ends: the acknowledgement first,
// then changes as they come.
func (c *conn) listen(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if !c.modern {
		return upstream.Reply{Error: errNoMethod}, nil
	}
	if on == nil {
		on = c.on
	}
	l := newListen(wire.Get(r.Params, "notifications"))
	tag := wire.Set(nil, wire.Edit{Key: wire.MetaSubscription, Value: wire.IntID(listens.Add(1))})
	tagged := func(params []byte) []byte { return wire.Set(params, wire.Edit{Key: "_meta", Value: tag}) }
	c.mu.Lock()
	c.listens[l] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.listens, l)
		c.mu.Unlock()
	}()
	c.meet()
	on(upstream.Event{Method: "notifications/subscriptions/acknowledged", Params: tagged(wire.Set(nil, wire.Edit{Key: "notifications", Value: l.granted()}))})
	for {
		select {
		case <-l.wake:
			for _, e := range l.take() {
				on(upstream.Event{Method: e.Method, Params: tagged(e.Params)})
			}
		case <-ctx.Done():
			return upstream.Reply{}, ctx.Err()
		case <-c.ctx.Done():
			return upstream.Reply{Result: tagged([]byte(`{"resultType":"complete"}`))}, nil
		}
	}
}

// newListen is what of a filter this server can tell of. Tools never change.
func newListen(want []byte) *listen {
	l := &listen{uris: make(map[string]bool), wake: make(chan struct{}, 1)}
	l.prompts = string(wire.Get(want, "promptsListChanged")) == "true"
	l.resources = string(wire.Get(want, "resourcesListChanged")) == "true"
	for raw := range wire.Elements(wire.Get(want, "resourceSubscriptions")) {
		uri, _ := wire.Text(raw)
		if _, ok := nameAt(uri); ok && len(l.uris) < urisKept {
			l.uris[uri] = true
		}
	}
	return l
}

// granted is the filter that is honoured.
func (l *listen) granted() []byte {
	var edits []wire.Edit
	if l.prompts {
		edits = append(edits, wire.Edit{Key: "promptsListChanged", Value: []byte("true")})
	}
	if l.resources {
		edits = append(edits, wire.Edit{Key: "resourcesListChanged", Value: []byte("true")})
	}
	if len(l.uris) > 0 {
		var out []byte
		for _, uri := range slices.Sorted(maps.Keys(l.uris)) {
			out = wire.AppendQuote(append(out, ','), uri)
		}
		out[0] = '['
		edits = append(edits, wire.Edit{Key: "resourceSubscriptions", Value: append(out, ']')})
	}
	return wire.Set(nil, edits...)
}

// put never waits.
func (l *listen) put(e upstream.Event) {
	uri, _ := wire.GetString(e.Params, "uri")
	if e.Method == promptsChanged && !l.prompts || e.Method == resourcesChanged && !l.resources || e.Method == resourceUpdated && !l.uris[uri] {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.wait {
		if w.Method == e.Method && string(w.Params) == string(e.Params) {
			return
		}
	}
	l.wait = append(l.wait, e)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *listen) take() []upstream.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.wait
	l.wait = nil
	return out
}
