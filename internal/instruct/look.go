package instruct

import (
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// The notifications of this server. They say no more than "look again".
const (
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

// seen is what a connection could see for one of its readers when it was looked
// at last. The zero value: nothing but what everybody can.
type seen struct {
	view  sight
	whole bool // there is a view
}

// readers are those for whom a connection may hear, by the id they come with.
func (c *conn) readers() map[string]*Reader {
	act := gate.Act{Who: c.who, Session: c.digest}
	out := make(map[string]*Reader)
	if r, _ := c.s.readerOf(act); r != nil {
		out[""] = r
	}
	for _, id := range c.s.spoken.of(c.place) {
		act.Delivery = id
		if r, _ := c.s.readerOf(act); r != nil {
			out[id] = r
		}
	}
	return out
}

// meet notes what readers can see whom the connection did not know: for them
// nothing has changed yet.
func (c *conn) meet() {
	for id, r := range c.readers() {
		now := c.s.seenBy(r)
		c.mu.Lock()
		if _, known := c.seen[id]; !known {
			c.note(id, now)
		}
		c.mu.Unlock()
	}
}

func (s *Server) seenBy(r *Reader) seen {
	v, ok := s.glance(r)
	return seen{v, ok}
}

// note keeps what a reader can see, unless he has ended meanwhile: forget has
// been here then. The caller holds mu.
func (c *conn) note(id string, is seen) {
	c.seen[id] = is
	if id != "" && !strings.HasPrefix(id, bearerMark) && !c.s.lives(id) {
		delete(c.seen, id)
	}
}

// forget drops what a session could see. What its client is told is that it has
// gone.
func (c *conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.seen[id]; ok {
		c.gone = c.gone || was.whole && !was.view.Empty()
		delete(c.seen, id)
	}
}

// look tells the client of what has changed for one of its readers since the
// last look.
func (c *conn) look() {
	now := make(map[string]seen)
	for id, r := range c.readers() {
		now[id] = c.s.seenBy(r)
	}
	c.mu.Lock()
	uris := c.uris()
	news := changes{prompts: c.gone, resources: c.gone, uris: make(map[string]bool)}
	for _, uri := range uris {
		if c.gone {
			news.uris[uri] = true
		}
	}
	c.gone = false
	for id, is := range now {
		if was, known := c.seen[id]; known {
			news.between(was, is, uris)
		}
		c.note(id, is)
	}
	c.prune()
	c.mu.Unlock()
	c.tell(&news)
}

// prune drops what was noted for ids that the connection is not known by any
// more. The caller holds mu.
func (c *conn) prune() {
	ids := c.s.spoken.of(c.place)
	for id := range c.seen {
		if id != "" && !slices.Contains(ids, id) {
			delete(c.seen, id)
		}
	}
}

// changes are what a client should look at again.
type changes struct {
	prompts, resources bool
	uris               map[string]bool
}

// between adds what differs for a reader.
func (n *changes) between(was, is seen, uris []string) {
	if was.whole == is.whole && was.revision() == is.revision() {
		return
	}
	n.prompts = n.prompts || string(prompts(was)) != string(prompts(is))
	n.resources = n.resources || string(resources(was)) != string(resources(is))
	for _, uri := range uris {
		if was.textAt(uri) != is.textAt(uri) {
			n.uris[uri] = true
		}
	}
}

func (v seen) revision() string {
	if !v.whole {
		return ""
	}
	return v.view.Revision()
}

// textAt is what stands under a URI, for comparing. No text has a NUL in it.
func (v seen) textAt(uri string) string {
	name, _ := nameAt(uri)
	if !v.whole {
		return "\x00"
	}
	if name == nameSession {
		return v.view.Revision()
	}
	text, err := v.view.Text(name)
	if err != nil {
		return "\x00"
	}
	return v.view.Preamble() + "\x00" + text
}

// tell puts changes where the client can hear them.
func (c *conn) tell(n *changes) {
	var events []upstream.Event
	if n.prompts {
		events = append(events, upstream.Event{Method: promptsChanged})
	}
	if n.resources {
		events = append(events, upstream.Event{Method: resourcesChanged})
	}
	for uri := range n.uris {
		events = append(events, updated(uri))
	}
	if len(events) == 0 {
		return
	}
	c.mu.Lock()
	listens := make([]*listen, 0, len(c.listens))
	for l := range c.listens {
		listens = append(listens, l)
	}
	c.mu.Unlock()
	for _, e := range events {
		for _, l := range listens {
			l.put(e)
		}
		if !c.modern && c.ctx.Err() == nil {
			c.on(e)
		}
	}
}

func updated(uri string) upstream.Event {
	return upstream.Event{Method: resourceUpdated, Params: wire.Set(nil, wire.Edit{Key: "uri", Value: wire.AppendQuote(nil, uri)})}
}
