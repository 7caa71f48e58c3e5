package deliver

import (
	"maps"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/trust/gate"
)

// borne notes the delivery session of a request of an MCP session, which determines what
// its client is told of list changes. An MCP session has one client, and has one token at
// a time. It is called for every request.
func (t *conns) borne(a *gate.Act) {
	if a.Session == "" || a.Delivery == "" || a.Delivery == unjudged || a.Delivery == endedSession || !a.Who.Valid() {
		return
	}
	if c := t.of(a.Session); c != nil && c.who.Key() == a.Who.Key() {
		c.bear(*a)
	}
}

// conns are the open connections.
type conns struct {
	sessions sync.Map // digest of an MCP session -> *conn; read at every request

	mu   sync.Mutex
	open map[*conn]struct{}
}

func (t *conns) add(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*conn]struct{})
	}
	t.open[c] = struct{}{}
	if c.digest != "" {
		t.sessions.Store(c.digest, c)
	}
}

func (t *conns) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	t.sessions.CompareAndDelete(c.digest, c)
}

// of returns the connection of an MCP session; nil: there is none.
func (t *conns) of(digest string) *conn {
	c, _ := t.sessions.Load(digest)
	found, _ := c.(*conn)
	return found
}

func (t *conns) all() []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.open))
}

// forget drops what listeners have seen of a session that has ended.
func (t *conns) forget(id string) {
	for _, c := range t.all() {
		c.forget(id)
	}
}

// afresh makes the next look set the state of all listeners without telling them of
// changes.
func (t *conns) afresh() {
	for _, c := range t.all() {
		c.mu.Lock()
		for l := range c.listens {
			l.met = false
		}
		c.mu.Unlock()
	}
}

// again tells all listeners to read each resource that they named again.
func (t *conns) again() {
	for _, c := range t.all() {
		c.mu.Lock()
		news := make(map[*listen]*changes, len(c.listens))
		for l := range c.listens {
			news[l] = &changes{uris: maps.Clone(l.uris)}
		}
		c.mu.Unlock()
		for l, n := range news {
			c.tell(l, n)
		}
	}
}
