package front

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/sse"
)

// waiting makes the Handler send a progress notification in each call, and answer those of the
// method "slow" when the returned channel gives leave.
func (h *house) waiting() (leave chan struct{}) {
	leave = make(chan struct{})
	h.serve = func(ctx context.Context, x *Exchange) Reply {
		x.Notify("notifications/progress", []byte(`{"progress":1}`))
		if x.Method == "slow" {
			select {
			case <-leave:
			case <-ctx.Done():
				return Reply{None: true}
			}
		}
		return Reply{Result: []byte(`{"done":true}`)}
	}
	return leave
}

// begin starts a call, and returns its stream and the id of the first event that has data.
func (h *house) begin(session, method string, id int) (*http.Response, *sse.Reader, string) {
	h.t.Helper()
	resp, events := h.stream("POST", "/mcp/s", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method), "Mcp-Session-Id", session)
	for {
		if e := frame(h.t, events); len(e.Data) > 0 {
			return resp, events, e.ID
		}
	}
}

// The stream of a running call can be resumed however many streams began after it; only streams
// of calls that have ended make room.
func TestTheStreamOfARunningCallIsKept(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	s := h.session("2025-11-25")
	leave := h.waiting()
	slow, _, at := h.begin(s, "slow", 1)
	slow.Body.Close()
	last := ""
	for i := range 2 * sessionStreams {
		resp, events, id := h.begin(s, "quick", i+2)
		frame(t, events)
		resp.Body.Close()
		last = id
	}
	close(leave)
	for _, id := range []string{at, last} {
		resp, events := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", s, "Last-Event-Id", id)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("resuming after %s: %s", id, resp.Status)
		}
		if e := frame(t, events); !strings.Contains(string(e.Data), `"done":true`) {
			t.Errorf("after %s: %s", id, e.Data)
		}
	}
	if n := len(h.door.only(t).logs); n > sessionStreams {
		t.Errorf("%d streams are kept", n)
	}
}

// A call that begins a stream while as many calls run as streams are kept is answered on a
// stream that cannot be resumed. Once one of them has ended there is room again.
func TestAStreamWithoutRoomIsAnsweredAllTheSame(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	s := h.session("2025-11-25")
	leave := h.waiting()
	kept := make([]*sse.Reader, sessionStreams)
	for i := range kept {
		_, events, id := h.begin(s, "slow", i+1)
		if kept[i] = events; id == "" {
			t.Fatalf("stream %d has no event ids", i+1)
		}
	}
	_, events, id := h.begin(s, "quick", 100)
	if e := frame(t, events); id != "" || e.ID != "" || !strings.Contains(string(e.Data), `"id":100,"result"`) {
		t.Errorf("id %q, then %q %s", id, e.ID, e.Data)
	}
	close(leave)
	for _, events := range kept {
		if e := frame(t, events); !strings.Contains(string(e.Data), `"done":true`) {
			t.Errorf("%s", e.Data)
		}
	}
	h.eventually("room", func() bool {
		resp, _, id := h.begin(s, "quick", 101)
		resp.Body.Close()
		return id != ""
	})
}

// An event that is not kept is answered with 400. A client takes 404 for the end of its session,
// which goes on here.
func TestAnUnknownEventIsNotTheEndOfTheSession(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	s, other := h.session("2025-11-25"), h.session("2025-11-25", "Who", "bob")
	h.waiting()
	_, events := h.stream("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"quick"}`, "Mcp-Session-Id", other, "Who", "bob")
	foreign := frame(t, events).ID
	for _, id := range []string{"x", "7", "-", "7-", "7-1", "-1-1", foreign, "18446744073709551616-0"} {
		a := h.do("GET", "/mcp/s", "", "Mcp-Session-Id", s, "Last-Event-Id", id)
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, "without this header") {
			t.Errorf("%s: %d %s", id, a.status, a.body)
		}
	}
	if a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, "Mcp-Session-Id", s); a.status != http.StatusOK {
		t.Errorf("the session: %d %s", a.status, a.body)
	}
}
