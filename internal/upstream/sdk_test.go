package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/test/doortest"
)

// sdkServer is a go-sdk server over the named transport.
func sdkServer(t *testing.T, transport string) *Server {
	t.Helper()
	if transport == "stdio" {
		path := doortest.SDK(t, "everything-server")
		return fake(t, "", func(d *Definition, _ *Deps) { d.Path, d.Args, d.Env = path, nil, process.Environment(nil) })
	}
	var flags []string
	for _, word := range strings.Fields(strings.TrimPrefix(transport, "http")) {
		flags = append(flags, "-"+word)
	}
	return webServer(t, doortest.ServeSDK(t, flags...), func(d *Definition, _ *Deps) {
		if transport == "sse" {
			d.Kind = KindSSE
		}
	})
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
