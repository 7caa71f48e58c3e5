package deliver

import (
	"context"
	"fmt"

	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/builtin"
)

// Open implements relay.Builtin.
func (s *Server) Open(who *principal.Principal, session string, modern bool, on func(upstream.Event)) (upstream.Conn, []byte) {
	c := &conn{s: s, who: who, digest: session, modern: modern, on: on, listens: make(map[*listen]struct{}), Life: builtin.NewLife(s.closing)}
	if !modern {
		c.subs = make(map[string]*listen)
		c.lists = s.readers.newLists(gate.Act{Who: who, Session: session})
		c.listens[c.lists] = struct{}{}
	}
	first := c.lists
	s.conns.add(c)
	if first != nil {
		c.meet(first)
	}
	return c, s.hello(modern)
}

// Call implements upstream.Conn.
func (c *conn) Call(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if c.Context.Err() != nil {
		return upstream.Reply{}, fmt.Errorf("the instruction server: %w", upstream.ErrNotSent)
	}
	if pass, ok := c.pass(ctx); ok {
		act := pass.Act()
		c.s.conns.borne(&act)
	}
	switch r.Method {
	case "tools/list":
		return builtin.List(c.modern, "tools", toolList, staticTime), nil
	case "tools/call":
		return c.call(ctx, r)
	case "prompts/list":
		return c.listed(ctx, "prompts", prompts)
	case "prompts/get":
		return c.prompt(ctx, r)
	case "resources/list":
		return c.listed(ctx, "resources", resources)
	case "resources/templates/list":
		return builtin.List(c.modern, "resourceTemplates", resourceTemplates, staticTime), nil
	case "resources/read":
		return c.read(ctx, r)
	case "resources/subscribe", "resources/unsubscribe":
		return c.subscribe(ctx, r), nil
	case "subscriptions/listen":
		return c.listen(ctx, r, on)
	case "ping":
		return upstream.Reply{Result: []byte("{}")}, nil
	}
	return upstream.Reply{Error: errNoMethod}, nil
}

// listed serves a request for a list. Without a valid token the list has only what every
// caller may read. A list for a reader has a record that names the reader.
func (c *conn) listed(ctx context.Context, name string, array func(seen) []byte) (upstream.Reply, error) {
	p, ok := c.pass(ctx)
	if !ok {
		return builtin.List(c.modern, name, array(seen{}), textTime), nil
	}
	c.s.storage.settle(ctx)
	r, _ := c.s.readers.readerOf(p.Act())
	v := c.s.readers.seenBy(r)
	if v.whole {
		if err := c.s.deliveries.showed(p.As(actionRead, ServerName, p.Rule()), r, v.view); err != nil {
			return upstream.Reply{}, err
		}
	}
	return builtin.List(c.modern, name, array(v), textTime), nil
}

// Close implements upstream.Conn.
func (c *conn) Close() {
	c.End()
	c.s.conns.remove(c)
}

// hello returns an InitializeResult or, in the modern era, a DiscoverResult. The relay
// adds the instructions, because they depend on the request.
func (s *Server) hello(modern bool) []byte {
	return builtin.About{Name: "doorward-instructions", Title: "Doorward instructions", Version: s.o.Version, TTL: textTime,
		Capabilities: `{"tools":{},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}`}.Hello(modern)
}
