package relay

import (
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
)

// A session that pauses gives its process back, and finds another when it returns,
// with the level and the subscription that it had; one that listens or calls keeps
// its own.
func TestAPausingSessionGivesItsProcessBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "session"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", "legacy")
			s.serve = func(q *query) {
				if q.name() == "long" {
					q.arrive()
				}
				q.result(`{"n":%d}`, q.n)
			}
			h := build(t, []Server{s.server(instances(mode))})
			b := h.relay.table.Load().byName["s"]
			future := time.Now().Add(time.Hour)
			sweep := func() { h.relay.sessions.rest(future); b.sweep(future) }
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			c.call("logging/setLevel", `{"level":"warning"}`)
			c.call("resources/subscribe", `{"uri":"file:///a"}`)

			done := make(chan string, 1)
			go func() { done <- c.tool("long", "") }()
			s.last("tools/call")
			sweep()
			s.proceed <- struct{}{}
			equal(t, "a call goes on", field(<-done, "result", "n"), "1")
			stream := c.listen()
			eventually(t, "it listens", h.sessionOf(c).Listening)
			sweep()
			s.open()[0].tell(protocol.ToolsChanged, `{}`)
			stream.nextOf(protocol.ToolsChanged)
			stream.stop()
			eventually(t, "its process ends", func() bool { sweep(); return len(s.open()) == 0 })

			equal(t, "another process", field(c.tool("t", ""), "result", "n"), "2")
			for _, method := range []string{"logging/setLevel", "resources/subscribe"} {
				eventually(t, method+" is said to the new process", func() bool { all := s.got(method); return all[len(all)-1].n == 2 })
			}
		})
	}
}

// To a built-in server the connection of a session is the session: a pause does not end it,
// and the end of the session does.
func TestAPauseDoesNotEndTheConnectionToABuiltInServer(t *testing.T) {
	t.Parallel()
	for path, prefix := range map[string]string{"/mcp/clerk": "", "/mcp": "clerk__"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			h, c := withClerk(t)
			s := h.legacy(path, "uid:1000", "{}")
			s.tool(prefix+"who", "")
			desk := func() *desk {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.conns["uid:1000 "+h.sessionOf(s).Digest]
			}
			first := desk()
			eventually(t, "it pauses", func() bool { _, idle := h.sessionOf(s).IdleSince(); return idle })
			h.relay.sessions.rest(time.Now().Add(time.Hour))
			select {
			case <-first.done:
				t.Fatal("the pause ended the connection")
			default:
			}
			s.tool(prefix+"who", "")
			if desk() != first {
				t.Error("the session came back on another connection")
			}
			s.end()
			<-first.done
		})
	}
}
