package instruct

import (
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/gate"
)

// spokenKept is how many sessions of delivery are known of one connection: a
// process that goes on after its token was renewed has one, and a client that
// serves many agents has many.
const spokenKept = 8

// placesKept bounds the places that are known. When there are more, all are
// forgotten: those that go on are known again with their next request.
const placesKept = 20_000

// spoken knows which sessions of delivery, and which bearer tokens, came with
// the requests of a connection. A connection of MCP belongs to a principal and
// a process, or to an MCP session; what it may hear of depends on the tokens
// that its requests bore.
type spoken struct {
	by sync.Map // place -> []string, ids, the latest last; replaced, never changed

	mu     sync.Mutex // of those who write
	places int
}

// place names a connection of MCP as the relay keeps them apart.
func place(a gate.Act) string { return a.Who.Key() + "\x00" + a.Session }

// add notes that a request with that id came from a place; it reports whether
// that is new. An MCP session bears one token at a time.
func (p *spoken) add(at, id string, only bool) bool {
	if slices.Contains(p.of(at), id) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := p.of(at)
	if slices.Contains(ids, id) {
		return false
	}
	if ids == nil {
		if p.places++; p.places > placesKept {
			p.by.Clear()
			p.places = 1
		}
	}
	if only {
		ids = nil
	}
	if len(ids) >= spokenKept {
		ids = ids[1:]
	}
	p.by.Store(at, append(slices.Clone(ids), id))
	return true
}

func (p *spoken) of(at string) []string {
	ids, _ := p.by.Load(at)
	known, _ := ids.([]string)
	return known
}

// sweep forgets the ids that stand for nobody any more.
func (p *spoken) sweep(stands func(id string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by.Range(func(at, _ any) bool {
		ids := slices.DeleteFunc(slices.Clone(p.of(at.(string))), func(id string) bool { return !stands(id) })
		if len(ids) == 0 {
			p.by.Delete(at)
			p.places--
		} else {
			p.by.Store(at, ids)
		}
		return true
	})
}

// Seen notes which session of delivery the requests of a connection bear, so
// that what is said to it unasked is said for that session. It is for every
// request by which somebody begins to listen.
func (s *Server) Seen(a gate.Act) {
	if a.Delivery == "" || !a.Who.Valid() {
		return
	}
	at := place(a)
	if !s.spoken.add(at, a.Delivery, a.Session != "") {
		return
	}
	for _, c := range s.conns.at(at) {
		c.meet()
	}
}

// conns are the open connections.
type conns struct {
	mu sync.Mutex
	by map[string]map[*conn]struct{} // by place
}

func (t *conns) add(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[string]map[*conn]struct{})
	}
	if t.by[c.place] == nil {
		t.by[c.place] = make(map[*conn]struct{}, 1)
	}
	t.by[c.place][c] = struct{}{}
}

func (t *conns) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.by[c.place], c)
	if len(t.by[c.place]) == 0 {
		delete(t.by, c.place)
	}
}

func (t *conns) at(place string) []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*conn, 0, len(t.by[place]))
	for c := range t.by[place] {
		out = append(out, c)
	}
	return out
}

func (t *conns) all() []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*conn
	for _, at := range t.by {
		for c := range at {
			out = append(out, c)
		}
	}
	return out
}

// forget drops what the connections know of a session that has ended.
func (t *conns) forget(id string) {
	for _, c := range t.all() {
		c.forget(id)
	}
}
