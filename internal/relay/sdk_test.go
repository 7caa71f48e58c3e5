package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// builtDir is removed when all tests have run.
var builtDir string

// everythingServer is go-sdk's conformance server, built once.
var everythingServer = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "doorward-relay")
	if err != nil {
		return "", err
	}
	builtDir = dir
	path := filepath.Join(dir, "everything-server")
	out, err := exec.Command("go", "build", "-o", path, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// go-sdk's conformance server works over standard streams for clients of both
// eras.
func TestSDKServer(t *testing.T) {
	t.Parallel()
	path, err := everythingServer()
	if err != nil {
		t.Fatal(err)
	}
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
	server := mcp.NewServer(&mcp.Implementation{Name: "old", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: map[string]any{"type": "object"}})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "action=" + res.Action}}}, nil, nil
	})
	web := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	s := &script{t: t, name: "old", kind: "sse"}
	h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.URL = web.URL })})

	contains(t, "a modern client", h.modern("/mcp/old", "uid:1000").call("tools/list", `{}`), `"name":"ask"`)
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
	post(request("1", "tools/call", `{"name":"ask"}`))
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
	server.AddTool(&mcp.Tool{Name: "more", InputSchema: map[string]any{"type": "object"}}, nil)
	for !strings.Contains(stream.next(), protocol.ToolsChanged) {
	}
}
