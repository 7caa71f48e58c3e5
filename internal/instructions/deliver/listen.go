package deliver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// urisKept bounds the resources of one listen, and the subscriptions of one MCP session.
const urisKept = 256

// listen is one listener: a subscriptions/listen, a subscription of a legacy
// session, or a legacy session's interest in lists. It is told of changes for the
// delivery session that it was opened with, and of nothing else on the same
// connection. Events of a modern listen wait for the goroutine of its call; a
// change that already waits is not added twice.
type listen struct {
	act                gate.Act             // by which it was opened
	bearer             *principal.Principal // of the bearer token shown beside the connection; mostly nil
	prompts, resources bool
	uris               map[string]bool
	wake               chan struct{}

	// Guarded by the connection.
	seen seen
	met  bool // seen is set
	gone bool // something that it could see has been removed: it is told to read everything again

	mu   sync.Mutex
	wait []upstream.Event
}

// newListen returns a listen for an act.
func (s *readers) newListen(a gate.Act) *listen {
	return &listen{act: a, bearer: s.credentials.bearers.find(a.Delivery, s.o.Now()), uris: make(map[string]bool), wake: make(chan struct{}, 1)}
}

// newLists returns the listen for list changes, which a legacy session is told without a
// request.
func (s *readers) newLists(a gate.Act) *listen {
	l := s.newListen(a)
	l.prompts, l.resources = true, true
	return l
}

// hearer returns the reader of a listen; nil: there is no valid token. A bearer token
// that came beside the connection counts as long as it is valid, even when it is no
// longer remembered.
func (s *readers) hearer(l *listen) *Reader {
	r, _ := s.readerOf(l.act)
	if l.bearer != nil {
		r = s.bearerReader(l.bearer)
	}
	if r != nil && r.Session == nil && !s.credentials.holds(r.Who) {
		return nil
	}
	return r
}

// same reports whether an act has the same delivery session and caller as l.
func (l *listen) same(a gate.Act) bool {
	return l.act.Delivery == a.Delivery && l.act.Who.Identity() == a.Who.Identity()
}

// meet notes what a new listen can see, as the state that later changes are compared
// with.
func (c *conn) meet(l *listen) {
	now := c.s.readers.seenBy(c.s.readers.hearer(l))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.met {
		c.note(l, now)
	}
}

// note sets what a listen can see, or nothing if its session has ended meanwhile: forget
// may have run already then. The caller holds mu.
func (c *conn) note(l *listen, is seen) {
	l.seen, l.met = is, true
	if id := l.act.Delivery; id != "" && l.bearer == nil && !c.s.credentials.lives(id) {
		l.seen = seen{}
	}
}

// bear moves a legacy session's list changes to the latest act of its client, and also
// its subscriptions whose token could not be verified.
func (c *conn) bear(a gate.Act) {
	c.rejoin(a)
	c.mu.Lock()
	was := c.lists
	if was == nil || was.same(a) {
		c.mu.Unlock()
		return
	}
	l := c.s.readers.newLists(a)
	l.gone = was.gone
	delete(c.listens, was)
	c.lists, c.listens[l] = l, struct{}{}
	c.mu.Unlock()
	c.meet(l)
}

// rejoin moves subscriptions with an unverified token to an act of the same
// client: an MCP session has one client.
func (c *conn) rejoin(a gate.Act) {
	var joined []*listen
	c.mu.Lock()
	if c.unjudged && !c.s.storage.Away() {
		for uri, l := range c.subs {
			if l.act.Delivery == unjudged {
				joined = append(joined, c.put(uri, a))
			}
		}
		c.unjudged = false
	}
	c.mu.Unlock()
	for _, l := range joined {
		c.meet(l)
	}
}

// subscribe begins or ends the push for a resource on a legacy session's stream. It does
// not reveal whether the resource exists; it may be added later.
func (c *conn) subscribe(ctx context.Context, r *upstream.Request) upstream.Reply {
	uri, _ := rawjson.GetString(r.Params, "uri")
	p, ok := c.pass(ctx)
	switch _, known := nameAt(uri); {
	case c.modern:
		return upstream.Reply{Error: errNoMethod}
	case !ok:
		return upstream.Reply{Error: errNoPass}
	case !known:
		return upstream.Reply{Error: errNoURI}
	case r.Method == "resources/unsubscribe":
		c.leave(uri)
	case !c.join(uri, p.Act()):
		return upstream.Reply{Error: errTooMany}
	}
	return upstream.Reply{Result: []byte("{}")}
}

// join subscribes a legacy session to a resource for an act; an earlier subscription by
// another act is replaced. False: it has too many subscriptions.
func (c *conn) join(uri string, a gate.Act) bool {
	c.mu.Lock()
	was := c.subs[uri]
	if was != nil && was.same(a) || was == nil && len(c.subs) >= urisKept {
		c.mu.Unlock()
		return was != nil
	}
	l := c.put(uri, a)
	c.unjudged = c.unjudged || a.Delivery == unjudged
	c.mu.Unlock()
	c.meet(l)
	return true
}

// put replaces the subscription to a resource. The caller holds mu.
func (c *conn) put(uri string, a gate.Act) *listen {
	l := c.s.readers.newListen(a)
	l.uris[uri] = true
	delete(c.listens, c.subs[uri])
	c.subs[uri], c.listens[l] = l, struct{}{}
	return l
}

func (c *conn) leave(uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.listens, c.subs[uri])
	delete(c.subs, uri)
}

// listens numbers the listens, because a subscription's id is the server's, not the
// client's.
var listens atomic.Int64

// listen serves subscriptions/listen until ctx ends: first the acknowledgement, then
// changes as they happen.
func (c *conn) listen(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if !c.modern {
		return upstream.Reply{Error: errNoMethod}, nil
	}
	if on == nil {
		on = c.on
	}
	p, ok := c.pass(ctx)
	if !ok {
		return upstream.Reply{Error: errNoPass}, nil
	}
	l := c.s.readers.newListen(p.Act())
	l.want(rawjson.Get(r.Params, "notifications"))
	tag := rawjson.Set(nil, rawjson.Edit{Key: wire.MetaSubscription, Value: wire.IntID(listens.Add(1))})
	tagged := func(params []byte) []byte { return rawjson.Set(params, rawjson.Edit{Key: "_meta", Value: tag}) }
	c.mu.Lock()
	c.listens[l] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.listens, l)
		c.mu.Unlock()
	}()
	c.meet(l)
	on(upstream.Event{Method: "notifications/subscriptions/acknowledged", Params: tagged(rawjson.Set(nil, rawjson.Edit{Key: "notifications", Value: l.granted()}))})
	write := func() {
		for _, e := range l.take() {
			on(upstream.Event{Method: e.Method, Params: tagged(e.Params)})
		}
	}
	complete := upstream.Reply{Result: tagged([]byte(`{"resultType":"complete"}`))}
	for {
		select {
		case <-l.wake:
			write()
		case <-ctx.Done():
			return upstream.Reply{}, ctx.Err()
		case <-c.s.storage.over(l):
			write()
			return complete, nil
		case <-c.Context.Done():
			return complete, nil
		}
	}
}

// want takes over the parts of a filter that this server supports. Tools never change.
func (l *listen) want(filter []byte) {
	l.prompts = string(rawjson.Get(filter, "promptsListChanged")) == "true"
	l.resources = string(rawjson.Get(filter, "resourcesListChanged")) == "true"
	for raw := range rawjson.Elements(rawjson.Get(filter, "resourceSubscriptions")) {
		uri, _ := wire.Text(raw)
		if _, ok := nameAt(uri); ok && len(l.uris) < urisKept {
			l.uris[uri] = true
		}
	}
}

// granted returns the filter that is honoured.
func (l *listen) granted() []byte {
	var edits []rawjson.Edit
	if l.prompts {
		edits = append(edits, rawjson.Edit{Key: "promptsListChanged", Value: []byte("true")})
	}
	if l.resources {
		edits = append(edits, rawjson.Edit{Key: "resourcesListChanged", Value: []byte("true")})
	}
	if len(l.uris) > 0 {
		var out []byte
		for _, uri := range slices.Sorted(maps.Keys(l.uris)) {
			out = rawjson.AppendQuote(append(out, ','), uri)
		}
		out[0] = '['
		edits = append(edits, rawjson.Edit{Key: "resourceSubscriptions", Value: append(out, ']')})
	}
	return rawjson.Set(nil, edits...)
}

// put queues an event. It never blocks.
func (l *listen) put(e upstream.Event) {
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

// over returns the channel that ends a listen whose token could not be verified; nil: the
// listen goes on.
func (s *storage) over(l *listen) <-chan struct{} {
	if s.late == nil || l.act.Delivery != unjudged {
		return nil
	}
	return s.late.begin
}
