package relay

import (
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/test/doortest"
)

// go-sdk's conformance server works over standard streams for clients of both
// eras.
func TestSDKServer(t *testing.T) {
	t.Parallel()
	path := doortest.SDK(t, "everything-server")
	s := &script{t: t, name: "sdk", kind: "stdio"}
	h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.Path, d.Args, d.Env = path, nil, process.Environment(nil) })},
		withRules("sdk", everyTool, askAll))
	t.Run("legacy", func(t *testing.T) {
		c := h.legacy("/mcp/sdk", "uid:1000", `{"elicitation":{},"sampling":{}}`)
		contains(t, "call", c.tool("test_simple_text", ""), `"type":"text"`)
		r := c.begin("tools/call", `{"name":"test_tool_with_progress","_meta":{"progressToken":"p"}}`)
		r.end()
		if len(r.before) < 3 || text(r.before[0], "params", "progressToken") != "p" {
			t.Errorf("progress: %s", r.before)
		}
		r = c.begin("tools/call", `{"name":"test_elicitation","arguments":{"message":"who?"}}`)
		q := r.nextOf("elicitation/create")
		contains(t, "question", q, `"message":"[sdk] who?"`)
		c.answer(q, `{"action":"accept","content":{"username":"u","email":"e@x.example"}}`)
		contains(t, "answer", r.end(), `accept`)
		contains(t, "unknown tool", c.tool("nope", ""), `"error"`)
	})
	t.Run("modern", func(t *testing.T) {
		m := h.modern("/mcp/sdk", "uid:1000")
		m.caps = elicits
		contains(t, "call", m.tool("test_simple_text", ""), `"type":"text"`, `"resultType":"complete"`)
		first := m.tool("test_input_required_result_elicitation", "")
		contains(t, "question", first, `"resultType":"input_required"`, `"[sdk] `)
		listen, _ := m.subscribe(`{"toolsListChanged":true}`)
		second, _ := m.subscribe(`{"promptsListChanged":true}`)
		m.tool("test_trigger_tool_change", "")
		contains(t, "change", listen.next(), protocol.ToolsChanged)
		m.tool("test_trigger_prompt_change", "")
		contains(t, "change", second.next(), protocol.PromptsChanged)
	})
}

// A client on the transport of 2024-11-05 can use a server on the same
// transport: calls, questions and changes pass.
func TestSSEOnBothSides(t *testing.T) {
	t.Parallel()
	url := doortest.ServeSDK(t, "-sse")
	s := &script{t: t, name: "old", kind: "sse"}
	h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.URL = url })})

	contains(t, "a modern client", h.modern("/mcp/old", "uid:1000").call("tools/list", `{}`), `"name":"test_elicitation"`)
	stream := h.send("GET", "/sse/old", "uid:1000", "", "Accept", "text/event-stream")
	endpoint := stream.next()
	post := func(body string) {
		if r := h.send("POST", endpoint, "uid:1000", body); r.status != http.StatusAccepted {
			t.Errorf("POST: %d", r.status)
		}
	}
	post(request("0", "initialize", `{"protocolVersion":"2024-11-05","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}`))
	contains(t, "initialize", stream.next(), `"serverInfo"`)
	post(notification("notifications/initialized", ""))
	post(request("1", "tools/call", `{"name":"test_elicitation"}`))
	q := stream.nextOf("elicitation/create")
	contains(t, "question", q, `"[old] who?"`)
	if r := h.send("POST", endpoint, "token:bob", `{"jsonrpc":"2.0","id":`+field(q, "id")+`,"result":{"action":"accept"}}`); r.status != 404 {
		t.Errorf("a stranger answers: %d", r.status)
	}
	post(`{"jsonrpc":"2.0","id":` + field(q, "id") + `,"result":{"action":"decline"}}`)
	for end := stream.next(); ; end = stream.next() {
		if field(end, "id") == "1" {
			contains(t, "answer", end, "action=decline")
			break
		}
	}
	post(request("2", "tools/call", `{"name":"test_trigger_tool_change"}`))
	for !strings.Contains(stream.next(), protocol.ToolsChanged) {
	}
}
