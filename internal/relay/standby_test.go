package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
)

// A legacy session that listens hears its legacy server again after the connection has ended,
// without a call of its own: it is told to look again, and its subscriptions hold.
func TestASessionHearsItsServerAfterARestart(t *testing.T) {
	t.Parallel()
	starts := map[string]func(*testing.T, string, string) *script{"stdio": stdio, "http": web, "sse": events}
	ends := map[string]func(*house, *script){
		"by itself":    func(_ *house, s *script) { s.open()[len(s.open())-1].close() },
		"by a restart": func(h *house, _ *script) { h.relay.RestartServer("s") },
	}
	for kind, start := range starts {
		for how, end := range ends {
			for path, prefix := range map[string]string{"/mcp/s": "", "/mcp": "doorward://s/"} {
				t.Run(kind+" "+how+" "+path, func(t *testing.T) {
					t.Parallel()
					s := start(t, "s", "legacy")
					h := build(t, []Server{s.server()})
					c := h.legacy(path, "uid:1000", `{}`)
					c.call("resources/subscribe", `{"uri":"`+prefix+`file:///a"}`)
					stream := c.listen()
					eventually(t, "it listens", h.sessionOf(c).Listening)
					eventually(t, "the connection is guarded", func() bool { return h.guard(c) != nil })
					last := newest(s)
					end(h, s)
					equal(t, "look again", text(stream.next(), "method"), protocol.ToolsChanged)
					equal(t, "at the resource too", text(stream.nextOf(protocol.ResourceUpdated), "params", "uri"), prefix+"file:///a")
					eventually(t, "another connection", func() bool { return newest(s) > last })
					equal(t, "subscribed there", text(string(s.last("resources/subscribe").Params), "uri"), "file:///a")
					s.change(protocol.ResourceUpdated, `{"uri":"file:///a","again":true}`)
					for field(stream.next(), "params", "again") == "" {
					}
				})
			}
		}
	}
}

// newest returns the number of the script's newest open connection; 0: none is open.
func newest(s *script) (n int) {
	for _, c := range s.open() {
		n = max(n, c.n)
	}
	return n
}

// A session that does not listen costs its server no process after the one that it used has
// ended.
func TestASessionThatDoesNotListenStartsNoServer(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	c.tool("t", "")
	if h.guard(c) != nil {
		t.Error("the connection is guarded")
	}
	c.listen()
	eventually(t, "the connection is guarded", func() bool { return h.guard(c) != nil })
	guard := h.guard(c)
	c.end()
	eventually(t, "the guard ends with the session", func() bool { return !guard.needed() })
}

// guard returns what waits for the end of the first connection of a client's only session.
func (h *house) guard(c *session) *standby {
	hub := &bound(h.sessionOf(c)).all()[0].link.hub
	hub.mu.Lock()
	defer hub.mu.Unlock()
	return hub.guarded
}
