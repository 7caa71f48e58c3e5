package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// A legacy client can use a server that speaks the modern era alone.
func TestLegacyClientOnAModernServer(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "modern")
			s.caps = strings.Replace(allCaps, `{"tools"`, `{"extensions":{"x":{}},"tools"`, 1)
			s.setList("tools/list", `{"tools":[{"name":"a","outputSchema":{"type":"array"},"x":1.0},{"name":"b","outputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":1,"cacheScope":"public"}`)
			s.serve = func(q *query) {
				switch {
				case q.name() == "input":
					q.result(`{"resultType":"input_required","inputRequests":{}}`)
				case q.name() == "array":
					q.result(`{"resultType":"complete","content":[],"structuredContent":[1.0]}`)
				default:
					q.result(`{"resultType":"complete","x":1.0,"ttlMs":7,"structuredContent":{"a":1.0},"echo":%s}`, orNull(q.Params))
				}
			}
			h := build(t, []Server{s.server()})
			c := h.legacy("/mcp/s", "uid:1000", elicits)
			equal(t, "initialize", field(c.hello, "result"), `{"protocolVersion":"2025-11-25","capabilities":`+s.caps+`,"serverInfo":{"name":"s","version":"1"},"instructions":"be kind"}`)
			equal(t, "tools/list", field(c.call("tools/list", ""), "result"), `{"tools":[{"name":"a","x":1.0},{"name":"b","outputSchema":{"type":"object"}}]}`)
			const meta = `"_meta":{"traceparent":"00-1","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"tester","version":"9"}}`
			got := field(c.call("tools/call", `{"name":"t","arguments":{"v":1.0},"_meta":{"traceparent":"00-1"},"inputResponses":{},"requestState":"forged"}`), "result")
			equal(t, "tools/call", got, `{"x":1.0,"ttlMs":7,"structuredContent":{"a":1.0},"echo":{"name":"t","arguments":{"v":1.0},`+meta+`}}`)
			equal(t, "prompts/list", join(names(c.call("prompts/list", ""), "prompts", "name")), "greet")
			contains(t, "prompts/get", c.call("prompts/get", `{"name":"greet"}`), `"name":"greet"`)
			contains(t, "resources/read", c.call("resources/read", `{"uri":"file:///a b"}`), `"uri":"file:///a b"`)
			equal(t, "an array is no structured content here", field(c.tool("array", ""), "result"), `{"content":[]}`)
			equal(t, "input without a question or a state", code(c.tool("input", "")), "1502")
			if n := len(s.got("initialize")); n > 1 {
				t.Errorf("%d attempts at a handshake", n)
			}
		})
	}
}

// A modern client can use a server that speaks the legacy era alone.
func TestModernClientOnALegacyServer(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			s.caps = strings.Replace(allCaps, `{"tools"`, `{"tasks":{"list":{}},"tools"`, 1)
			s.serve = func(q *query) {
				switch {
				case q.Method == "resources/read" && strings.Contains(q.raw, "gone"):
					q.emit([]byte(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"error":{"code":-32002,"message":"not here","data":{"uri":"file:///gone"}}}`))
				case q.name() == "inner":
					q.fail(-32601, "no such thing inside")
				default:
					q.result(`{"x":1.0,"echo":%s}`, orNull(q.Params))
				}
			}
			h := build(t, []Server{s.server()})
			m := h.modern("/mcp/s", "uid:1000")
			m.caps = elicits
			m.meta = []rawjson.Edit{{Key: wire.MetaClientInfo, Value: []byte(`{"name":"t"}`)}, {Key: wire.MetaLogLevel, Value: []byte(`"info"`)}}
			discover := m.call("server/discover", `{}`)
			contains(t, "discover", discover, `"supportedVersions":["2026-07-28"`, `"capabilities":`+allCaps, `"resultType":"complete"`, `"ttlMs":0`, `"cacheScope":"private"`, `"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}`, `"instructions":"be kind"`)
			equal(t, "tools/list", field(m.call("tools/list", `{}`), "result"), `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`)
			equal(t, "tools/call", field(m.call("tools/call", `{"name":"t","arguments":{"v":1.0},"inputResponses":{},"_meta":{"traceparent":"00-1"}}`), "result"),
				`{"x":1.0,"echo":{"name":"t","arguments":{"v":1.0},"_meta":{"traceparent":"00-1"}},"resultType":"complete"}`)
			contains(t, "prompts/get", m.call("prompts/get", `{"name":"greet"}`), `"name":"greet"`, `"resultType":"complete"`)
			contains(t, "resources/read", m.call("resources/read", `{"uri":"file:///a b"}`), `"uri":"file:///a b"`, `"ttlMs":0`, `"cacheScope":"private"`)
			equal(t, "not found", field(m.call("resources/read", `{"uri":"file:///gone"}`), "error"), `{"code":-32602,"message":"not here","data":{"uri":"file:///gone"}}`)
			equal(t, "a forged state", code(m.call("tools/call", `{"name":"t","requestState":"forged"}`)), "-32602")
			r := m.begin("tools/call", `{"name":"inner"}`)
			if end := r.end(); r.status != 200 || code(end) != "-32601" {
				t.Errorf("what a tool did not find became %d %s", r.status, end)
			}
			equal(t, "declared", field(s.last("initialize").raw, "params", "capabilities"), elicits)
		})
	}
}

// A server of both eras is connected once for each, and nothing is bridged.
func TestServerOfBothEras(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "both")
	h := build(t, []Server{s.server()})
	h.legacy("/mcp/s", "uid:1000", `{}`).tool("t", "")
	if strings.Contains(s.last("tools/call").raw, wire.MetaVersion) {
		t.Error("a legacy call was bridged")
	}
	m := h.modern("/mcp/s", "uid:1000")
	m.tool("t", "")
	contains(t, "modern call", s.last("tools/call").raw, wire.MetaVersion)
	if st := h.relay.Status(); st[0].Era != "both" || st[0].Instances != 2 || st[0].State != "connected" {
		t.Errorf("status %+v", st)
	}
}

func TestProtocolCanBePinned(t *testing.T) {
	t.Parallel()
	pin := func(era string) func(*Server, *upstream.Definition) {
		return func(s *Server, _ *upstream.Definition) { s.Protocol = era }
	}
	s := web(t, "s", "both")
	h := build(t, []Server{s.server(pin("legacy"))})
	h.modern("/mcp/s", "uid:1000").tool("t", "")
	if len(s.got("server/discover")) != 0 {
		t.Error("a server pinned to legacy was probed")
	}
	s = web(t, "s", "both")
	h = build(t, []Server{s.server(pin("modern"))})
	h.legacy("/mcp/s", "uid:1000", `{}`).tool("t", "")
	if len(s.got("initialize")) != 0 {
		t.Error("a server pinned to modern was initialized")
	}
	legacyOnly := web(t, "s", "legacy")
	h = build(t, []Server{legacyOnly.server(pin("modern"))})
	equal(t, "pinned to an era that it does not speak", code(h.modern("/mcp/s", "uid:1000").tool("t", "")), "1502")
}

// The era of a server is probed once and remembered. When no era works any
// more, both are tried again.
func TestEraIsRemembered(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "legacy")
	h := build(t, []Server{s.server()})
	for _, who := range []string{"uid:1000", "token:a", "token:b"} {
		h.modern("/mcp/s", who).tool("t", "")
	}
	if n := len(s.got("server/discover")); n != 1 {
		t.Errorf("%d probes", n)
	}
	b := &backend{}
	b.lacks(1)
	b.lacks(2)
	if got := b.eras(1); len(got) != 2 || b.known.Load() != 0 {
		t.Errorf("nothing is left to try: %v", got)
	}
}

// The setting of instances decides which callers share a connection.
func TestInstances(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode, era string
		want      [6]int // connection of: two legacy sessions of ann, bob's, two modern calls of ann, bob's
	}{
		{"auto", "both", [6]int{1, 1, 2, 3, 3, 4}},
		{"session", "both", [6]int{1, 2, 3, 4, 4, 5}},
		{"principal", "both", [6]int{1, 1, 2, 3, 3, 4}},
		{"shared", "both", [6]int{1, 1, 1, 2, 2, 2}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", c.era)
			s.serve = func(q *query) { q.result(`{"n":%d}`, q.n) }
			h := build(t, []Server{s.server(instances(c.mode))})
			var got [6]int
			for i, who := range []string{"token:ann", "token:ann", "token:bob"} {
				got[i] = int(field(h.legacy("/mcp/s", who, `{}`).tool("t", ""), "result", "n")[0] - '0')
			}
			for i, who := range []string{"token:ann", "token:ann", "token:bob"} {
				got[3+i] = int(field(h.modern("/mcp/s", who).tool("t", ""), "result", "n")[0] - '0')
			}
			if got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// On a connection that principals share, the server is told of no capability to
// ask and each of its questions is refused, so that none reaches the wrong
// principal.
func TestSharedConnectionCarriesNoQuestions(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) { q.result(`{"answer":%s}`, q.ask(policy.AskElicitation, form)) }
	h := build(t, []Server{s.server(instances("shared"))})
	ann := h.legacy("/mcp/s", "token:ann", elicits)
	h.legacy("/mcp/s", "token:bob", elicits)
	equal(t, "capabilities", field(s.last("initialize").raw, "params", "capabilities"), `{}`)
	r := ann.begin("tools/call", `{"name":"t"}`)
	contains(t, "answer", r.end(), `"action":"decline"`)
	if len(r.before) != 0 {
		t.Errorf("the client was asked: %s", r.before)
	}
	equal(t, "outcome", h.outcome(h.decided(policy.AskElicitation, "s")), "unsupported")
	answers := make(chan string, 1)
	go func() { answers <- s.open()[0].put(policy.AskElicitation, form) }()
	contains(t, "outside a call", <-answers, `"action":"decline"`)
	h.recorded("the refusal of a question outside a call", func(r record) bool {
		return r.Action == policy.AskElicitation && r.Decision == "deny" && r.Principal == ""
	})
}

// A pooled connection is closed when it was not used for long, and not before:
// not while a call runs or a client listens.
func TestIdleConnectionsAreSwept(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "modern")
	s.serve = func(q *query) { q.arrive(); q.result(`{}`) }
	h := build(t, []Server{s.server()})
	b := h.relay.table.Load().byName["s"]
	future := time.Now().Add(time.Hour)
	m := h.modern("/mcp/s", "uid:1000")
	done := make(chan string)
	go func() { done <- m.tool("t", "") }()
	s.last("tools/call")
	b.sweep(future)
	s.proceed <- struct{}{}
	equal(t, "a call that runs", field(<-done, "result", "resultType"), `"complete"`)
	r, _ := m.subscribe(everyList)
	b.sweep(future)
	s.change(protocol.ToolsChanged, `{}`)
	r.next()
	r.stop()
	eventually(t, "no listen is open", func() bool { return s.listening() == 0 })
	b.sweep(time.Now().Add(-time.Hour))
	if len(s.open()) != 1 {
		t.Error("it was swept too early")
	}
	b.sweep(future)
	eventually(t, "the child ends", func() bool { return len(s.open()) == 0 })
}
