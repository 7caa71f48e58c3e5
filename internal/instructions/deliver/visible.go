package deliver

import (
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream"
)

// The notifications of this server. They carry no content.
const (
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

// forget drops what a session could see; its listens are told at the next look to read
// again.
func (c *conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listens {
		if l.act.Delivery == id {
			l.gone = l.gone || l.seen.whole && !l.seen.view.Empty()
			l.seen = seen{}
		}
	}
}

// views returns what the listeners can see now. Listens of the same caller and session
// are evaluated once.
func (c *conn) views() map[*listen]seen {
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.listens))
	c.mu.Unlock()
	out, by := make(map[*listen]seen, len(open)), make(map[string]seen, 1)
	for _, l := range open {
		key := l.act.Delivery + "\x00" + l.act.Who.Identity()
		is, known := by[key]
		if !known {
			is = c.s.readers.seenBy(c.s.readers.hearer(l))
			by[key] = is
		}
		out[l] = is
	}
	return out
}

// look tells each listen what has changed for it since the last look.
func (c *conn) look() {
	now := c.views()
	news := make(map[*listen]*changes)
	c.mu.Lock()
	for l, is := range now {
		if _, open := c.listens[l]; open {
			news[l] = l.news(is)
			c.note(l, is)
		}
	}
	c.mu.Unlock()
	for l, n := range news {
		c.tell(l, n)
	}
}

// news returns what has changed for a listen that now sees is. The caller holds mu of the
// connection.
func (l *listen) news(is seen) *changes {
	n := &changes{prompts: l.gone, resources: l.gone, uris: make(map[string]bool)}
	for uri := range l.uris {
		n.uris[uri] = l.gone
	}
	l.gone = false
	if l.met {
		n.between(l.seen, is, l.uris)
	}
	return n
}

// changes are the lists and resources that a client should read again.
type changes struct {
	prompts, resources bool
	uris               map[string]bool
}

// between adds the differences between two states.
func (n *changes) between(was, is seen, uris map[string]bool) {
	if was.whole == is.whole && was.revision() == is.revision() {
		return
	}
	n.prompts = n.prompts || string(prompts(was)) != string(prompts(is))
	n.resources = n.resources || string(resources(was)) != string(resources(is))
	for uri := range uris {
		if was.textAt(uri) != is.textAt(uri) {
			n.uris[uri] = true
		}
	}
}

// tell sends changes to the client: on its listen, or on the stream of its MCP session.
func (c *conn) tell(l *listen, n *changes) {
	var events []upstream.Event
	if n.prompts && l.prompts {
		events = append(events, upstream.Event{Method: promptsChanged})
	}
	if n.resources && l.resources {
		events = append(events, upstream.Event{Method: resourcesChanged})
	}
	for uri, told := range n.uris {
		if told {
			events = append(events, updated(uri))
		}
	}
	for _, e := range events {
		switch {
		case c.modern:
			l.put(e)
		case c.Context.Err() == nil:
			c.on(e)
		}
	}
}

func updated(uri string) upstream.Event {
	return upstream.Event{Method: resourceUpdated, Params: rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: rawjson.AppendQuote(nil, uri)})}
}
