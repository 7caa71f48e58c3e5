//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// resume asks for what came after the event id.
func (w *web) resume(t *testing.T, id string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, w.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", w.session)
	req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	req.Header.Set("Last-Event-ID", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestResume breaks off the stream of a running call, as a laptop's network
// does, and takes the answer from where it stopped: once and complete.
func TestResume(t *testing.T) {
	d := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}.start(t)
	w := dialWeb(t, d.MCP("recorder"), false)
	sse := http.Header{"Accept": {"text/event-stream, application/json"}}
	resp := w.post(t, `{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"name":"wait","arguments":{"ms":1200},"_meta":{"progressToken":"p"}}}`, sse)
	stream := newEvents(resp.Body)
	first, err := stream.next()
	if err != nil || first.id == "" || len(first.data) > 0 || first.retry == "" {
		t.Fatalf("the stream does not begin with a priming event that has an id and a delay: %+v %v", first, err)
	}
	progress, err := stream.next()
	if err != nil || !strings.Contains(string(progress.data), `"progressToken":"p"`) || progress.id == "" {
		t.Fatalf("no progress that could be resumed from: %+v %v", progress, err)
	}
	resp.Body.Close()

	again := w.resume(t, progress.id)
	defer again.Body.Close()
	if again.StatusCode != http.StatusOK {
		t.Fatalf("HTTP %d to Last-Event-ID", again.StatusCode)
	}
	answer, err := readReply(again, `"long"`)
	if err != nil || !strings.Contains(string(answer.Result), "waited") {
		t.Fatalf("answer after the interruption: %s %v", answer.Result, err)
	}

	// From the very beginning the whole stream is replayed, in its order.
	replay := w.resume(t, first.id)
	defer replay.Body.Close()
	events := newEvents(replay.Body)
	for _, part := range []string{`"progressToken":"p"`, "waited"} {
		e, err := events.next()
		for err == nil && len(e.data) == 0 {
			e, err = events.next()
		}
		if err != nil || !strings.Contains(string(e.data), part) {
			t.Fatalf("replay: %q %v, want %s", e.data, err, part)
		}
	}
}

// TestResumeIsPrivate: an event id is no key to another session's stream.
func TestResumeIsPrivate(t *testing.T) {
	d := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}.start(t)
	mine, other := dialWeb(t, d.MCP("recorder"), false), dialWeb(t, d.MCP("recorder"), false)
	sse := http.Header{"Accept": {"text/event-stream, application/json"}}
	resp := mine.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"secret":"xyzzy"}}}`, sse)
	first, err := newEvents(resp.Body).next()
	resp.Body.Close()
	if err != nil || first.id == "" {
		t.Fatalf("%+v %v", first, err)
	}
	stolen := other.resume(t, first.id)
	defer stolen.Body.Close()
	if stolen.StatusCode == http.StatusOK {
		e, _ := newEvents(stolen.Body).next()
		t.Fatalf("another session's event id is answered: %s", e.data)
	}
}

// TestRestart: a client whose daemon was killed learns with 404 that its
// session is gone, and a new one works at the same address.
func TestRestart(t *testing.T) {
	servers := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, "legacy"), nil)}}
	yaml := strings.Replace(servers.yaml(t), "127.0.0.1:0", fmt.Sprintf("127.0.0.1:%d", fixture.FreePort(t)), 1)
	d := doortest.Start(t, yaml, doortest.Options{})
	w := dialWeb(t, d.MCP("recorder"), false)
	d.Kill9()

	doortest.Start(t, yaml, doortest.Options{Dir: d.Dir})
	resp := w.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, nil)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("HTTP %d for a session of the killed daemon", resp.StatusCode)
	}
	result, rpcError := dialWeb(t, w.url, false).call(t, "tools/call", `{"name":"echo","arguments":{"again":true}}`)
	var got struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(result, &got); err != nil || rpcError != nil || got.Content[0].Text != `{"again":true}` {
		t.Errorf("after the restart: %s %s %v", result, rpcError, err)
	}
}
