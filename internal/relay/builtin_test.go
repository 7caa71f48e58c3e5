package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// clerk is a built-in server whose tool says which principal called it and
// which records its calls itself.
type clerk struct {
	gate func() *gate.Gate
	over chan struct{} // closed to end the listens; nil: they do not end

	mu    sync.Mutex
	conns map[string]*desk
}

// desk is one connection of a clerk.
type desk struct {
	clerk   *clerk
	who     *principal.Principal
	session string
	modern  bool
	on      func(upstream.Event)
	done    chan struct{}
	once    sync.Once
}

func (c *clerk) Open(who *principal.Principal, session string, modern bool, on func(upstream.Event)) (upstream.Conn, []byte) {
	d := &desk{clerk: c, who: who, session: session, modern: modern, on: on, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = make(map[string]*desk)
	}
	c.conns[who.Key()+" "+session] = d
	return d, []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"clerk","version":"1"}}`)
}

func (d *desk) Call(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	switch r.Method {
	case "tools/list":
		return upstream.Reply{Result: []byte(`{"tools":[{"name":"who","inputSchema":{"type":"object"}}]}`)}, nil
	case "resources/subscribe":
		return upstream.Reply{Result: []byte(`{}`)}, nil
	case "subscriptions/listen":
		on(upstream.Event{Method: "notifications/subscriptions/acknowledged", Params: rawjson.Set(nil, rawjson.Edit{Key: "notifications", Value: rawjson.Get(r.Params, "notifications")})})
		on(upstream.Event{Method: protocol.ResourceUpdated, Params: []byte(`{"uri":"clerk://desk"}`)})
		select {
		case <-d.clerk.over:
			on(upstream.Event{Method: protocol.ResourceUpdated, Params: []byte(`{"uri":"clerk://last"}`)})
			return upstream.Reply{Result: []byte(`{"resultType":"complete"}`)}, nil
		case <-ctx.Done():
		}
		return upstream.Reply{}, ctx.Err()
	case "tools/call":
		return d.call(ctx, r)
	}
	return upstream.Reply{Error: &wire.Error{Code: -32601, Message: "no such method"}}, nil
}

func (d *desk) call(ctx context.Context, r *upstream.Request) (upstream.Reply, error) {
	pass, ok := gate.PassOf(ctx)
	if !ok {
		return upstream.Reply{Error: &wire.Error{Code: -32600, Message: "nobody let this in"}}, nil
	}
	if name, _ := rawjson.GetString(r.Params, "name"); name == "silent" {
		return upstream.Reply{Result: []byte(`{}`)}, nil
	}
	g := d.clerk.gate()
	if _, err := g.Record(pass.As("clerk.who", "desk", "clerk.rule").Line(audit.Field{Name: "label", Value: r.Headers.Get(protocol.HeaderNamespace)})); err != nil {
		return upstream.Reply{}, err
	}
	text := fmt.Sprintf("%s in %q, on the connection of %s in %q", pass.Act().Who.Name(), pass.Act().Session, d.who.Name(), d.session)
	return upstream.Reply{Result: rawjson.Set(nil, rawjson.Edit{Key: "said", Value: rawjson.AppendQuote(nil, text)})}, nil
}

func (d *desk) Notify(context.Context, string, []byte) error          { return nil }
func (d *desk) Answer(context.Context, wire.ID, upstream.Reply) error { return nil }
func (d *desk) Listen()                                               {}
func (d *desk) Close()                                                { d.once.Do(func() { close(d.done) }) }
func (d *desk) Done() <-chan struct{}                                 { return d.done }
func (d *desk) Err() error                                            { return upstream.ErrLost }

func withClerk(t *testing.T, options ...option) (*house, *clerk) {
	t.Helper()
	c := &clerk{}
	h := build(t, []Server{{Name: "clerk", Kind: KindBuiltin, Builtin: c, Source: "agent_msg"}, {Name: "agent", Kind: KindBuiltin, Builtin: c, Source: "agent_msg"}}, options...)
	c.gate = func() *gate.Gate { return h.gate }
	return h, c
}

// TestABuiltInServerIsToldItsCaller: each request carries the principal and
// session that the front found, whatever connection it came on.
func TestABuiltInServerIsToldItsCaller(t *testing.T) {
	t.Parallel()
	h, _ := withClerk(t)
	first := text(h.legacy("/mcp/clerk", "uid:1000", "{}").tool("who", ""), "result", "said")
	second := text(h.legacy("/mcp", "uid:1000", "{}").tool("clerk__who", ""), "result", "said")
	var digests [2]string
	for i, said := range []string{first, second} {
		if _, err := fmt.Sscanf(said, "uid:1000 in %q,", &digests[i]); err != nil || digests[i] == "" {
			t.Fatalf("%s: %v", said, err)
		}
		equal(t, "said", said, fmt.Sprintf("uid:1000 in %[1]q, on the connection of uid:1000 in %[1]q", digests[i]))
	}
	if digests[0] == digests[1] {
		t.Error("two sessions have one name")
	}
	equal(t, "no session", text(h.modern("/mcp/clerk", "token:t").tool("who", ""), "result", "said"),
		`token:t in "", on the connection of token:t in ""`)
}

// TestABuiltInServerRecordsItsCallsItself: a call has one record, made by the
// server.
func TestABuiltInServerRecordsItsCallsItself(t *testing.T) {
	t.Parallel()
	h, _ := withClerk(t)
	h.modern("/mcp/clerk", "uid:1000").tool("who", "")
	d := h.decided("clerk.who", "desk")
	equal(t, "record", d.Source+" "+d.Rule+" "+d.Decision, "agent_msg clerk.rule allow")
	if n := h.count("tools/call", "clerk/who"); n != 0 {
		t.Errorf("and %d of the gate", n)
	}
}

// TestNoAdmittedCallIsUnrecorded: the gate records a call that never came to
// its server, and one that the server did not record. The caller of the latter
// gets an error in place of the result.
func TestNoAdmittedCallIsUnrecorded(t *testing.T) {
	t.Parallel()
	h, _ := withClerk(t)
	m := h.modern("/mcp/clerk", "uid:1000")
	answer := m.call("tools/call", `{"name":"silent","arguments":{}}`)
	equal(t, "what has no record is not given", code(answer), "1503")
	equal(t, "forgotten", h.decided("tools/call", "clerk/silent").Rule, "builtin.unrecorded")
	answer = m.call("tools/call", `{"name":"who","arguments":{},"requestState":"garbage"}`)
	equal(t, "code", code(answer), "-32602")
	equal(t, "never came", h.decided("tools/call", "clerk/who").Rule, "builtin.invalid")
	if n := h.count("tools/call", "clerk/silent") + h.count("tools/call", "clerk/who"); n != 2 {
		t.Errorf("%d records of two calls", n)
	}
}

// TestACallerWithoutRightsFindsNoBuiltInServer: a built-in server is hidden
// from a caller that may do none of the actions in its Needs.
func TestACallerWithoutRightsFindsNoBuiltInServer(t *testing.T) {
	t.Parallel()
	c := &clerk{}
	h := build(t, []Server{{Name: "clerk", Kind: KindBuiltin, Builtin: c, Needs: "agent.read agent.register"}})
	c.gate = func() *gate.Gate { return h.gate }
	if r := h.modern("/mcp/clerk", "token:t").begin("server/discover", `{}`); r.status != 404 {
		t.Errorf("%d", r.status)
	}
	equal(t, "the aggregate's", join(names(h.modern("/mcp", "token:t").call("tools/list", `{}`), "tools", "name")), "")
	equal(t, "the owner's", join(names(h.modern("/mcp", "uid:1000").call("tools/list", `{}`), "tools", "name")), "clerk__who")
}

// TestRemoteCallersAreRefusedMessaging: the server agent lists nothing to a
// caller with a token, and refuses its first request and every call by 1403.
func TestRemoteCallersAreRefusedMessaging(t *testing.T) {
	t.Parallel()
	h, _ := withClerk(t)
	m := h.modern("/mcp/agent", "token:t")
	for _, answer := range []string{m.call("server/discover", `{}`), m.call("tools/list", `{}`), m.tool("who", ""),
		h.modern("/mcp", "token:t").tool("agent__who", "")} {
		equal(t, "code of "+answer, code(answer), "1403")
	}
	equal(t, "listed", join(names(h.modern("/mcp", "token:t").call("tools/list", `{}`), "tools", "name")), "clerk__who")
	equal(t, "to a local one", join(names(h.modern("/mcp", "uid:1000").call("tools/list", `{}`), "tools", "name")), "agent__who clerk__who")
	d := h.decided("tools/call", "agent/who")
	equal(t, "record", d.Source+" "+d.Decision+" "+d.Rule, "agent_msg deny default.no-messaging")
}

// TestASessionsEndReachesTheBuiltInServer: its connection is closed, which is
// the only sign that the server gets.
func TestASessionsEndReachesTheBuiltInServer(t *testing.T) {
	t.Parallel()
	h, c := withClerk(t)
	s := h.legacy("/mcp/clerk", "uid:1000", "{}")
	s.tool("who", "")
	key := "uid:1000 " + h.sessionOf(s).Digest
	c.mu.Lock()
	d := c.conns[key]
	c.mu.Unlock()
	s.end()
	<-d.done
}

// TestEachListenOfABuiltInServerGetsTheStateFirst: also the second listen on one
// connection.
func TestEachListenOfABuiltInServerGetsTheStateFirst(t *testing.T) {
	t.Parallel()
	h, _ := withClerk(t)
	m := h.modern("/mcp/clerk", "uid:1000")
	for range 2 {
		r, _ := m.subscribe(`{"resourceSubscriptions":["clerk://desk"]}`)
		equal(t, "at once", text(r.nextOf(protocol.ResourceUpdated), "params", "uri"), "clerk://desk")
	}
}

// TestAListenThatABuiltInServerEndsIsOver for its client, on the aggregate too.
// The client gets every update before the end, and can listen again.
func TestAListenThatABuiltInServerEndsIsOver(t *testing.T) {
	t.Parallel()
	for path, prefix := range map[string]string{"/mcp/clerk": "", "/mcp": "doorward://clerk/"} {
		c := &clerk{over: make(chan struct{})}
		h := build(t, []Server{{Name: "clerk", Kind: KindBuiltin, Builtin: c}})
		m := h.modern(path, "uid:1000")
		filter := `{"resourceSubscriptions":["` + prefix + `clerk://desk","` + prefix + `clerk://last"]}`
		r, _ := m.subscribe(filter)
		equal(t, "at once", text(r.nextOf(protocol.ResourceUpdated), "params", "uri"), prefix+"clerk://desk")
		close(c.over)
		for text(r.nextOf(protocol.ResourceUpdated), "params", "uri") != prefix+"clerk://last" {
		}
		r.nextOf("notifications/cancelled")
		contains(t, "result", r.next(), `"resultType":"complete"`)
		r, _ = m.subscribe(filter) // one that is over at once is acknowledged first
		r.nextOf("notifications/cancelled")
		contains(t, "result", r.next(), `"resultType":"complete"`)
	}
}

// TestProcessesOfOneUserHaveConnectionsOfTheirOwn to a built-in server, which
// tells processes apart. They share a connection to other servers.
func TestProcessesOfOneUserHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	process := func(instance string) *principal.Principal {
		return principal.New("uid:1000", principal.Fact{Name: principal.FactInstance, Value: instance, Grade: principal.Attested})
	}
	h, _ := withClerk(t)
	builtin := h.relay.table.Load().byName["clerk"]
	if h.relay.links.pooled(builtin, process("a"), 2) == h.relay.links.pooled(builtin, process("b"), 2) {
		t.Error("two processes share a connection")
	}
	other := newBackend(Server{Name: "other", Kind: "http"})
	defer other.close()
	if h.relay.links.pooled(other, process("a"), 2) != h.relay.links.pooled(other, process("b"), 2) {
		t.Error("two processes of one user do not share")
	}
}
