package front

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A client that resumes a stream whose call has ended, and that has got all of it, is told with 204
// that there is nothing to come back for. Otherwise it resumes the empty answer, which names no event,
// as the standalone stream, and takes the 409 for a lost connection.
func TestAStreamThatHasNothingLeftIsNotResumed(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{true, false} {
		for sent := 1; sent <= 3; sent++ {
			t.Run(fmt.Sprintf("cancelled %v, %d messages", cancelled, sent), func(t *testing.T) {
				t.Parallel()
				h := open(t, Options{})
				h.serve = func(ctx context.Context, x *Exchange) Reply {
					for range sent {
						x.Notify("notifications/progress", []byte(`{}`))
					}
					if cancelled {
						<-ctx.Done()
						return Reply{None: true}
					}
					return Reply{Result: []byte(`{}`)}
				}
				id := h.session("2025-11-25")
				_, events := h.stream("POST", "/mcp/s", `{"jsonrpc":"2.0","id":"c","method":"x/wait"}`, "Mcp-Session-Id", id)
				ids := []string{frame(t, events).ID}
				for range sent {
					ids = append(ids, frame(t, events).ID)
				}
				if cancelled {
					h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`, "Mcp-Session-Id", id)
				} else {
					ids = append(ids, frame(t, events).ID)
				}
				if e, err := events.Next(); err == nil {
					t.Fatalf("after the last message: %s", e.Data)
				}
				for i, last := range ids {
					want := http.StatusOK
					if i == len(ids)-1 {
						want = http.StatusNoContent
					}
					if resp, _ := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Last-Event-Id", last); resp.StatusCode != want {
						t.Errorf("resumed after %s of %s: %s, want %d", last, ids, resp.Status, want)
					}
				}
			})
		}
	}
}

// A stream whose call runs is resumed behind its last message too, and gets the answer.
func TestAStreamThatWaitsForItsAnswerIsResumed(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	answer := make(chan struct{})
	h.serve = func(_ context.Context, x *Exchange) Reply {
		x.Notify("notifications/progress", []byte(`{}`))
		<-answer
		return Reply{Result: []byte(`{"done":true}`)}
	}
	id := h.session("2025-11-25")
	_, events := h.stream("POST", "/mcp/s", `{"jsonrpc":"2.0","id":"c","method":"x/wait"}`, "Mcp-Session-Id", id)
	frame(t, events)
	resp, events := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Last-Event-Id", frame(t, events).ID)
	close(answer)
	if e := frame(t, events); resp.StatusCode != http.StatusOK || !strings.Contains(string(e.Data), `"done":true`) {
		t.Errorf("%s, %s", resp.Status, e.Data)
	}
}
