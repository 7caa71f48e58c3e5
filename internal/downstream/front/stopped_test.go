package front

import (
	"context"
	"strings"
	"testing"
)

// TestEveryRequestIsAnsweredAtTheStop: a request that the end of the daemon cancels gets an error
// with its id, whether its stream had begun or not. Over HTTP+SSE its stream ends instead. Without an answer
// `doorward connect` would leave its client waiting. A request that its client cancelled gets none.
func TestEveryRequestIsAnsweredAtTheStop(t *testing.T) {
	t.Parallel()
	const call = `{"jsonrpc":"2.0","id":"c","method":"x/wait","params":{}}`
	for name, c := range map[string]struct {
		version, body string
		begins        bool // the server sends a notification first
	}{
		"a body":             {"2025-11-25", call, false},
		"a stream":           {"2025-11-25", call, true},
		"an older session":   {"2025-03-26", call, false},
		"an element":         {"2025-03-26", `[` + call + `,{"jsonrpc":"2.0","id":"d","method":"tools/list"}]`, false},
		"a stream of before": {"2025-03-26", call, true},
	} {
		for _, stop := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := open(t, Options{})
				h.serve = func(ctx context.Context, x *Exchange) Reply {
					if c.begins {
						x.StartStream()
						x.Notify("notifications/progress", []byte(`{}`))
					}
					<-ctx.Done()
					return Reply{None: true}
				}
				id := h.session(c.version)
				done := make(chan answer)
				go func() {
					done <- h.do("POST", "/mcp/s", c.body, "Mcp-Session-Id", id, "Accept", "application/json, text/event-stream")
				}()
				h.await("x/wait", 1)
				if stop {
					h.door.Close()
				} else {
					h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`, "Mcp-Session-Id", id)
				}
				a := <-done
				if got := strings.Contains(a.body, `"id":"c","error":{"code":1502`); got != stop {
					t.Errorf("stopped %v: %d %q", stop, a.status, a.body)
				}
			})
		}
	}
}
