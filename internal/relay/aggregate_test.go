package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// clients returns the call function of one client of each era on the same path.
func clients(h *house, path, who string) map[string]func(method, params string) string {
	return map[string]func(string, string) string{
		"legacy": h.legacy(path, who, `{}`).call,
		"modern": func(method, params string) string {
			if params == "" {
				params = `{}`
			}
			return h.modern(path, who).call(method, params)
		},
	}
}

func TestMergedLists(t *testing.T) {
	t.Parallel()
	a, b := web(t, "alpha", "both"), stdio(t, "beta", "legacy")
	paging(b)
	a.setList("tools/list", `{"tools":[{"x":1.0,"name":"z","title":"Z"},{"name":"a__b","big":9007199254740993}],"other":1}`)
	a.setList("resources/list", `{"resources":[{"name":"n","uri":"file:///a%20b?c=d#e"},{"uri":"doorward://beta/x","name":"odd"}]}`)
	h := build(t, []Server{b.server(), a.server()})
	for era, call := range clients(h, "/mcp", "uid:1000") {
		first := call("tools/list", "")
		contains(t, era, first, `{"x":1.0,"name":"alpha__z","title":"Z","inputSchema":{"type":"object"}},{"name":"alpha__a__b","big":9007199254740993,"inputSchema":{"type":"object"}},{"name":"beta__a","inputSchema":{"type":"object"}}`)
		cursor := field(first, "result", "nextCursor")
		equal(t, era+": empty cursor", join(names(call("tools/list", `{"cursor":""}`), "tools", "name")), join(names(first, "tools", "name")))
		second := call("tools/list", `{"cursor":`+cursor+`}`)
		equal(t, era+": page 2", join(names(second, "tools", "name")), "beta__b")
		if field(second, "result", "nextCursor") != "" {
			t.Errorf("%s: a third page: %s", era, second)
		}
		for what, end := range map[string]string{
			"bare":            call("tools/list", `{"cursor":"beta é"}`),
			"other method":    call("prompts/list", `{"cursor":`+cursor+`}`),
			"other principal": clients(h, "/mcp", "token:bob")[era]("tools/list", `{"cursor":`+cursor+`}`),
			"one server":      clients(h, "/mcp/alpha", "uid:1000")[era]("tools/list", `{"cursor":`+cursor+`}`),
		} {
			if what == "one server" && era == "legacy" {
				continue // passed to the server as it came
			}
			equal(t, era+": cursor, "+what, field(end, "error"), `{"code":-32602,"message":"Invalid cursor"}`)
		}
		equal(t, era+": prompts", join(names(call("prompts/list", ""), "prompts", "name")), "alpha__greet beta__greet")
		equal(t, era+": resources", join(names(call("resources/list", ""), "resources", "uri")),
			"doorward://alpha/file:///a%20b?c=d#e doorward://alpha/doorward://beta/x doorward://beta/file:///a b")
		equal(t, era+": templates", join(names(call("resources/templates/list", ""), "resourceTemplates", "uriTemplate")),
			"doorward://alpha/file:///{p} doorward://beta/file:///{p}")
		hints := field(first, "result", "ttlMs") + field(first, "result", "cacheScope") + field(first, "result", "resultType")
		equal(t, era+": hints", hints, map[string]string{"legacy": "", "modern": `0"private""complete"`}[era])
	}
}

func TestAggregateRoutesByName(t *testing.T) {
	t.Parallel()
	a, b := web(t, "alpha", "both"), web(t, "beta", "both")
	h := build(t, []Server{a.server(), b.server()})
	for era, call := range clients(h, "/mcp", "uid:1000") {
		for _, c := range []struct{ method, params, member, plain, resource string }{
			{"tools/call", `{"name":"alpha__x__y","arguments":{"v":1.0}}`, "name", "x__y", "alpha/x__y"},
			{"prompts/get", `{"name":"alpha__greet"}`, "name", "greet", "alpha/greet"},
			{"resources/read", `{"uri":"doorward://alpha/file:///a%20b?c=d#e"}`, "uri", "file:///a%20b?c=d#e", "alpha/file:///a%20b?c=d#e"},
			{"resources/read", `{"uri":"doorward://alpha/doorward://beta/x"}`, "uri", "doorward://beta/x", "alpha/doorward://beta/x"},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"alpha__greet"},"argument":{"name":"a","value":"1.0"}}`, "ref", "greet", "alpha/greet"},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"doorward://alpha/file:///{p}"},"argument":{"name":"p","value":""}}`, "ref", "file:///{p}", "alpha/file:///{p}"},
		} {
			if field(call(c.method, c.params), "result") == "" {
				t.Errorf("%s %s failed", era, c.params)
			}
			q := a.last(c.method)
			got := text(q.raw, "params", c.member)
			if c.member == "ref" {
				got = text(q.raw, "params", "ref", "name") + text(q.raw, "params", "ref", "uri")
			}
			equal(t, era+" "+c.params, got, c.plain)
			h.decided(c.method, c.resource)
		}
		contains(t, "the arguments stay", a.last("tools/call").raw, `"arguments":{"v":1.0}`)
	}
	if n := len(b.seen); n != 0 {
		t.Errorf("the other server got %d messages", n)
	}
}

// A missing server, a server that the caller may not see and a name without a
// server get the same answer, so that a caller cannot learn which servers
// exist.
func TestUnknownNamesLookAlike(t *testing.T) {
	t.Parallel()
	a, secret := web(t, "alpha", "both"), web(t, "secret", "both")
	h := build(t, []Server{a.server(), secret.server()})
	who := "token:ci server:alpha"
	for era, call := range clients(h, "/mcp", who) {
		for _, c := range []struct{ method, member, format, want string }{
			{"tools/call", "name", "%s__t", `{"code":-32602,"message":"Unknown tool"}`},
			{"prompts/get", "name", "%s__t", `{"code":-32602,"message":"Unknown prompt"}`},
			{"resources/read", "uri", "doorward://%s/x", `{"code":-32602,"message":"Resource not found"}`},
		} {
			for _, name := range []string{fmt.Sprintf(c.format, "secret"), fmt.Sprintf(c.format, "ghost"), "plain", "", "__x", "doorward://",
				"alpha", "secret", "alpha__", "alpha_t", "doorward://alpha", "doorward://alpha/"} {
				equal(t, era+" "+c.method+" "+name, field(call(c.method, fmt.Sprintf(`{%q:%q}`, c.member, name)), "error"), c.want)
			}
			equal(t, era+" "+c.method+" without a name", field(call(c.method, `{}`), "error"), c.want)
		}
		for _, method := range []string{"future/method", "tasks/get", "completion/x"} {
			for _, name := range []string{"secret__t", "ghost__t"} {
				got := call(method, fmt.Sprintf(`{"taskId":%q}`, name))
				equal(t, era+" "+method+" "+name, field(got, "error"), field(call(method, `{"taskId":"t"}`), "error"))
			}
			equal(t, era+" "+method+" without a name", field(call(method, `{"x":"alpha__t"}`), "error"), `{"code":-32601,"message":"Method not found"}`)
		}
		equal(t, era+" a question", field(call("sampling/createMessage", `{"name":"alpha__t"}`), "error"), `{"code":-32601,"message":"Method not found"}`)
		equal(t, era+" list", join(names(call("tools/list", ""), "tools", "name")), "alpha__echo")
	}
	if n := len(secret.seen); n != 0 {
		t.Errorf("the hidden server got %d messages", n)
	}
	for _, q := range a.taken() {
		if q.Method != "tools/list" && q.Method != "initialize" && q.Method != "server/discover" && q.Kind == wire.Request {
			t.Errorf("a server got what names nothing of it: %s", q.raw)
		}
	}
}

// For every principal the listed tools are those that can be called.
func TestListIsWhatCanBeCalled(t *testing.T) {
	t.Parallel()
	const tools = "read_a read_b write stat"
	s, free := web(t, "s", "both"), web(t, "free", "both")
	var entries []string
	for _, n := range strings.Fields(tools) {
		entries = append(entries, `{"name":"`+n+`"}`)
	}
	s.setList("tools/list", `{"tools":[`+strings.Join(entries, ", ")+`,{"title":"no name"}]}`)
	free.setList("tools/list", s.lists["tools/list"])
	h := build(t, []Server{s.server(), free.server()}, withRules("s", policy.List{Allow: []string{"read_*", "stat"}, Deny: []string{"*_b"}}, elicitation))
	for _, who := range []string{"uid:1000", "loopback:uid=1000", "loopback:unknown", "token:ci", "token:a server:s", "token:b tool:s/stat", "token:c tool:s/write,tool:s/read_a", "token:d tool:free/write"} {
		for era, call := range clients(h, "/mcp", who) {
			listed := join(names(call("tools/list", ""), "tools", "name"))
			var callable []string
			for _, server := range []string{"free", "s"} {
				for _, tool := range strings.Fields(tools) {
					if field(call("tools/call", `{"name":"`+server+`__`+tool+`"}`), "result") != "" {
						callable = append(callable, server+"__"+tool)
					}
				}
			}
			if listed != join(callable) || listed == "" {
				t.Errorf("%s %s: listed %s, callable %s", era, who, listed, callable)
			}
		}
		for _, server := range []string{"s", "free"} {
			if h.modern("/mcp/"+server, who).begin("server/discover", `{}`).status != 200 {
				continue
			}
			listed := join(names(h.modern("/mcp/"+server, who).call("tools/list", `{}`), "tools", "name"))
			var want []string
			for _, n := range names(h.modern("/mcp", who).call("tools/list", `{}`), "tools", "name") {
				if plain, ok := strings.CutPrefix(n, server+"__"); ok {
					want = append(want, plain)
				}
			}
			equal(t, who+" on "+server, listed, join(want))
		}
	}
}

// A list of which nothing is removed keeps its bytes. A filtered list loses
// only the denied entries, and is private.
func TestFilteredListKeepsTheRest(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	const head = `{ "x":1.0, "tools":[`
	const tail = `],"ttlMs":60000,"resultType":"complete","_meta":{"a":1.0}`
	s.setList("tools/list", head+`{"name":"keep","y":1.0} ,{"name":"drop"}`+tail+`,"cacheScope":"public"}`)
	h := build(t, []Server{s.server()}, withRules("s", policy.List{Allow: []string{"*"}, Deny: []string{"drop"}}, elicitation))
	m := h.modern("/mcp/s", "uid:1000")
	equal(t, "filtered", field(m.call("tools/list", `{}`), "result"), head+`{"name":"keep","y":1.0}`+tail+`,"cacheScope":"private"}`)
	whole := head + `{"name":"keep","y":1.0} ` + tail + `,"cacheScope":"private"}`
	s.setList("tools/list", whole)
	equal(t, "whole", field(m.call("tools/list", `{}`), "result"), whole)
}

// A server that dies, hangs or sends garbage at the handshake does not keep the
// tools of other servers out of a list. Its own are listed once it comes up.
func TestBadServersHideNoOther(t *testing.T) {
	t.Parallel()
	good := web(t, "good", "both")
	for what, broken := range map[string]func(*query) bool{
		"dies at the handshake":  func(q *query) bool { q.conn.close(); return true },
		"hangs at the handshake": func(q *query) bool { <-q.ctx.Done(); return true },
		"refuses the handshake":  func(q *query) bool { q.fail(-32603, "no"); return true },
		"garbage at the handshake": func(q *query) bool {
			q.emit([]byte(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"a":1,"a":2}}`))
			return true
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			bad := stdio(t, "bad", "legacy")
			up := make(chan struct{})
			bad.refuse = func(q *query) bool {
				select {
				case <-up:
					return false
				default:
					return broken(q)
				}
			}
			h := build(t, []Server{good.server(), bad.server(func(_ *Server, d *upstream.Definition) { d.Start, d.Timeout = timeoutOfBad, timeoutOfBad })})
			c := h.legacy("/mcp", "uid:1000", `{}`)
			stream := c.listen()
			equal(t, "without it", join(names(c.call("tools/list", ""), "tools", "name")), "good__echo")
			m := h.modern("/mcp", "uid:1000")
			listen, ack := m.subscribe(`{"toolsListChanged":true}`)
			contains(t, "ack", ack, `"notifications":{"toolsListChanged":true}`)
			close(up)
			stream.nextOf(protocol.ToolsChanged)
			equal(t, "with it", join(names(c.call("tools/list", ""), "tools", "name")), "bad__echo good__echo")
			listen.nextOf(protocol.ToolsChanged)
			equal(t, "a modern client", join(names(m.call("tools/list", `{}`), "tools", "name")), "bad__echo good__echo")
		})
	}
}

const timeoutOfBad = 1200 * time.Millisecond

// A server that answers the handshake and then delays its list delays the list
// of the aggregate once. Later lists do not wait for it, and clients are told
// once when its list has come.
func TestServerThatOwesItsList(t *testing.T) {
	t.Parallel()
	good, slow := web(t, "good", "legacy"), stdio(t, "slow", "legacy")
	slow.setList("tools/list", "")
	slow.serve = func(q *query) {
		q.arrive()
		q.result(`{"tools":[{"name":"late"}]}`)
	}
	h := build(t, []Server{good.server(), slow.server(func(_ *Server, d *upstream.Definition) { d.Timeout = timeoutOfBad })})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	stream := c.listen()
	equal(t, "without it", join(names(c.call("tools/list", ""), "tools", "name")), "good__echo")
	stream.silent()
	var late *latecomer
	for _, held := range h.relay.sessions.of(h.sessionOf(c)).all() {
		if held.link.b.Name == "slow" {
			late = &held.link.late
		}
	}
	if !late.expected("tools/list") || late.expected("prompts/list") {
		t.Error("the next list would wait for it again")
	}
	equal(t, "still without it", join(names(c.call("tools/list", ""), "tools", "name")), "good__echo")
	close(slow.proceed)
	stream.nextOf(protocol.ToolsChanged)
	equal(t, "with it", join(names(c.call("tools/list", ""), "tools", "name")), "good__echo slow__late")
	stream.silent()
	if late.expected("tools/list") {
		t.Error("what has come is still expected")
	}
}

func TestNotificationsOfTheAggregateAreNamed(t *testing.T) {
	t.Parallel()
	s := stdio(t, "alpha", "legacy")
	s.serve = func(q *query) {
		switch q.Method {
		case "tools/call":
			q.notify("notifications/message", `{"level":"info","logger":"core","data":1.0}`)
			q.result(`{}`)
		default:
			q.result(`{}`)
		}
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	stream := c.listen()
	r := c.begin("tools/call", `{"name":"alpha__t"}`)
	r.end()
	equal(t, "log with a call", join(r.before), `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"alpha__core","data":1.0}}`)
	c.call("resources/subscribe", `{"uri":"doorward://alpha/file:///x"}`)
	equal(t, "subscription", string(s.last("resources/subscribe").Params), `{"uri":"file:///x"}`)
	s.open()[0].tell(protocol.ResourceUpdated, `{"uri":"file:///x","y":1.0}`)
	equal(t, "update", stream.next(), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"doorward://alpha/file:///x","y":1.0}}`)
	s.open()[0].tell("notifications/message", `{"level":"info","logger":"core"}`)
	equal(t, "log without a call", stream.next(), `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"alpha__core"}}`)
	s.open()[0].tell(protocol.ToolsChanged, `{}`)
	equal(t, "change", field(stream.next(), "method"), `"`+protocol.ToolsChanged+`"`)
}

// The log level of an aggregate's session reaches the servers in use, and
// others when they come into use.
func TestLevelOfTheAggregate(t *testing.T) {
	t.Parallel()
	a, b, m := stdio(t, "alpha", "legacy"), stdio(t, "beta", "legacy"), web(t, "gamma", "modern")
	h := build(t, []Server{a.server(), b.server(), m.server()})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	c.tool("alpha__t", "")
	equal(t, "answer", c.call("logging/setLevel", `{"level":"warning"}`), `{"jsonrpc":"2.0","id":2,"result":{}}`)
	equal(t, "in use", string(a.last("logging/setLevel").Params), `{"level":"warning"}`)
	c.tool("beta__t", "")
	equal(t, "come into use", string(b.last("logging/setLevel").Params), `{"level":"warning"}`)
	if got := b.got("logging/setLevel"); len(got) != 1 || b.got("tools/call")[0].n != got[0].n {
		t.Errorf("%d levels", len(got))
	}
	c.tool("gamma__t", "")
	equal(t, "modern", field(m.last("tools/call").raw, "params", "_meta", wire.MetaLogLevel), `"warning"`)
	equal(t, "bad", code(c.call("logging/setLevel", `{"level":7}`)), "-32602")
}

func TestHandshakeOfTheAggregateStartsNoServer(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "both")
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	contains(t, "initialize", c.hello, `"serverInfo":{"name":"doorward","version":"test"}`, `"protocolVersion":"2025-11-25"`)
	contains(t, "discover", h.modern("/mcp", "uid:1000").call("server/discover", `{}`), `"io.modelcontextprotocol/serverInfo":{"name":"doorward","version":"test"}`, `"2026-07-28"`)
	if s.connected() != 0 {
		t.Error("a server was started for a handshake")
	}
}

func FuzzNames(f *testing.F) {
	f.Add("alpha", "x__y")
	f.Add("a-b", "file:///a/b?c#d")
	f.Add("a", "")
	f.Fuzz(func(t *testing.T, server, name string) {
		if strings.Contains(server, "__") || strings.HasSuffix(server, "_") || strings.Contains(server, "/") || server == "" || name == "" {
			return // no name of a server (config), or none at all
		}
		if s, n, ok := resolve.SplitName(resolve.JoinName(server, name)); !ok || s != server || n != name {
			t.Errorf("%q %q became %q %q", server, name, s, n)
		}
		if s, u, ok := resolve.SplitURI(resolve.JoinURI(server, name)); !ok || s != server || u != name {
			t.Errorf("%q %q became %q %q", server, name, s, u)
		}
	})
}
