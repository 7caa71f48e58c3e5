package upstream

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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream/process"
)

// everythingServer is go-sdk's conformance server, built once.
var everythingServer = sync.OnceValues(func() (string, error) {
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(scratch, "everything-server")
	out, err := exec.Command("go", "build", "-o", path, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// sdkServer is a go-sdk server over the named transport.
func sdkServer(t *testing.T, transport string) *Server {
	t.Helper()
	if transport == "stdio" {
		path, err := everythingServer()
		if err != nil {
			t.Fatalf("building the server: %v", err)
		}
		return fake(t, "", func(d *Definition, _ *Deps) { d.Path, d.Args, d.Env = path, nil, process.Environment(nil) })
	}
	server := sdkFixture()
	get := func(*http.Request) *mcp.Server { return server }
	var h http.Handler
	switch transport {
	case "sse":
		h = mcp.NewSSEHandler(get, nil)
	default:
		h = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless:    strings.Contains(transport, "stateless"),
			JSONResponse: strings.Contains(transport, "json"),
		})
	}
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return webServer(t, web.URL, func(d *Definition, _ *Deps) {
		if transport == "sse" {
			d.Kind = KindSSE
		}
	})
}

// sdkFixture has the tools of the conformance server that the tests use.
func sdkFixture() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "fixture", Version: "1"}, nil)
	say := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	mcp.AddTool(s, &mcp.Tool{Name: "test_simple_text"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return say("simple"), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "test_tool_with_progress"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		for i := range 3 {
			r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)})
		}
		return say("done"), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "test_elicitation"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct {
		Message string `json:"message"`
	}) (*mcp.CallToolResult, any, error) {
		res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: map[string]any{"type": "object"}})
		if err != nil {
			return nil, nil, err
		}
		return say("action=" + res.Action), nil, nil
	})
	return s
}

func TestSDKLegacy(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http", "http json", "sse"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			c := dialLegacy(t, sdkServer(t, transport), nil)
			c.Listen()
			reply := mustCall(t, c, &Request{Method: "tools/list"}, nil)
			if !strings.Contains(string(reply.Result), "test_tool_with_progress") {
				t.Errorf("tools/list: %.200s", reply.Result)
			}
			for range 50 {
				reply := mustCall(t, c, tool("test_simple_text"), nil)
				if !strings.Contains(string(reply.Result), "simple") {
					t.Fatalf("got %s %v", reply.Result, reply.Error)
				}
			}
			var got recorder
			r := tool("test_tool_with_progress")
			r.ProgressToken = []byte(`"mine"`)
			mustCall(t, c, r, got.on)
			if n := got.count(methodProgress); n != 3 && transport != "http json" {
				t.Errorf("%d progress notifications", n)
			}
			for _, ev := range got.all() {
				if string(rawjson.Get(ev.Params, "progressToken")) != `"mine"` {
					t.Errorf("progress %s", ev.Params)
				}
			}
			// Over HTTP go-sdk refuses an unknown method with a plain 400.
			if reply, err := c.Call(testContext(t), &Request{Method: "no/such"}, nil); reply.Error == nil && !errors.Is(err, ErrProtocol) {
				t.Errorf("an unknown method: %s %v", reply.Result, err)
			}
			mustCall(t, c, &Request{Method: "tools/list"}, nil)
		})
	}
}

func TestSDKElicitation(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http", "sse"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			c := dialLegacy(t, sdkServer(t, transport), nil)
			reply := mustCall(t, c, tool("test_elicitation", `"message":"hello"`), func(ev Event) {
				if ev.Method != "elicitation/create" || ev.ID == nil {
					return
				}
				if err := c.Answer(context.Background(), ev.ID, Reply{Result: []byte(`{"action":"decline"}`)}); err != nil {
					t.Error(err)
				}
			})
			if !strings.Contains(string(reply.Result), "action=decline") {
				t.Errorf("got %s %v", reply.Result, reply.Error)
			}
		})
	}
}

func TestSDKModern(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http stateless", "http stateless json"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			c := dialModern(t, sdkServer(t, transport), nil)
			withMeta := func(name string) *Request {
				return &Request{Method: "tools/call", Params: []byte(`{"name":"` + name + `","arguments":{},"_meta":` + modernMeta + `}`)}
			}
			for range 20 {
				reply := mustCall(t, c, withMeta("test_simple_text"), nil)
				if !strings.Contains(string(reply.Result), "simple") {
					t.Fatalf("got %s %v", reply.Result, reply.Error)
				}
			}
			var got recorder
			r := withMeta("test_tool_with_progress")
			r.ProgressToken = []byte(`7`)
			mustCall(t, c, r, got.on)
			if n := got.count(methodProgress); n != 3 && !strings.Contains(transport, "json") {
				t.Errorf("%d progress notifications", n)
			}
			if reply := mustCall(t, c, withMeta("no-such-tool"), nil); reply.Error == nil {
				t.Errorf("an unknown tool: %s", reply.Result)
			}
			// The metadata is missing: the server says so in JSON-RPC.
			if reply := mustCall(t, c, &Request{Method: "tools/call", Params: []byte(`{"name":"test_simple_text","arguments":{}}`)}, nil); transport != "stdio" && reply.Error == nil {
				t.Errorf("without metadata: %s", reply.Result)
			}
		})
	}
}

// A stateful go-sdk handler answers server/discover with legacy revisions.
func TestSDKStatefulServerIsLegacy(t *testing.T) {
	t.Parallel()
	s := sdkServer(t, "http")
	if _, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, ErrEra) {
		t.Errorf("got %v", err)
	}
	dialLegacy(t, s, nil)
}

func TestSDKSubscription(t *testing.T) {
	t.Parallel()
	c := dialModern(t, sdkServer(t, "stdio"), nil)
	ctx, cancel := context.WithCancel(testContext(t))
	var got recorder
	ended := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, &Request{Method: methodListen, Params: []byte(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["test://watched-resource"]},"_meta":` + modernMeta + `}`)}, got.on)
		ended <- err
	}()
	eventually(t, "the acknowledgement and an update", func() bool {
		return got.count("notifications/subscriptions/acknowledged") == 1 && got.count("notifications/resources/updated") > 0
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
