package front

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A client has left as soon as the kernel has the end of its connection, which the context of
// the request follows later.
func TestAClientThatHasHungUpHasLeft(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]time.Duration{"a call of a connection": 0, "a call that may outlive its connection": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var closed atomic.Bool
			h := open(t, Options{StreamTime: limit, HungUp: func(context.Context) func() bool { return closed.Load }})
			legacy := h.session("2025-11-25")
			left := make(chan [2]bool, 1)
			h.serve = func(_ context.Context, x *Exchange) Reply {
				before := x.Left()
				closed.Store(true)
				left <- [2]bool{before, x.Left()}
				closed.Store(false)
				return Reply{Result: []byte(`{}`)}
			}
			h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, "Mcp-Session-Id", legacy)
			if got := <-left; got != [2]bool{false, true} {
				t.Errorf("in a session: left before and after the end: %v", got)
			}
			h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",`+modernMeta+`}}`,
				"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "t")
			if got := <-left; got != [2]bool{false, true} {
				t.Errorf("without a session: left before and after the end: %v", got)
			}
		})
	}
}

// A connection that Doorward ends at the limit for streams tells nothing about the client,
// which comes back for the answer.
func TestAConnectionThatWasEndedHereIsNoHangUp(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	h := open(t, Options{StreamTime: 20 * time.Millisecond, HungUp: func(context.Context) func() bool { return closed.Load }})
	s := h.session("2025-11-25")
	release := make(chan bool)
	h.serve = func(_ context.Context, x *Exchange) Reply {
		x.Notify("notifications/progress", []byte(`{}`))
		<-release
		return Reply{Result: []byte(`{"left":` + strconv.FormatBool(x.Left()) + `}`)}
	}
	_, events := h.stream("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"slow"}`, "Mcp-Session-Id", s, "Accept", prefersStream)
	last := ""
	for e, err := events.Next(); err == nil; e, err = events.Next() {
		last = e.ID
	}
	closed.Store(true)
	close(release)
	if got := h.poll(s, last); !strings.Contains(got, `"left":false`) {
		t.Errorf("got %s", got)
	}
}
