package relay

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
)

// A client whose modern server refuses each listen is told to look again when another process
// replaces that server. What it does at the same process tells it nothing.
func TestARefusedListenTellsOfNoReplacement(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "modern")
	s.onListen = func(*query) string { return "" }
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	session, stream := h.sessionOf(c), c.listen()
	eventually(t, "a listen is refused", func() bool { return len(s.got("subscriptions/listen")) > 0 })
	for range 2 {
		c.tool("t", "")
		toldNothing(t, session.Notify, stream)
		h.relay.RestartServer("s")
		eventually(t, "the connection ends", func() bool { return !h.link().live.Load().alive() })
		c.tool("t", "")
		stream.nextOf(protocol.ResourcesChanged) // the last one of what it is told
	}
}

// toldNothing fails the test if a client was told to look again since it was last.
func toldNothing(t *testing.T, notify func(method string, params []byte), stream *reply) {
	t.Helper()
	notify("notifications/fence", nil)
	for {
		m := stream.next()
		if strings.Contains(m, "notifications/fence") {
			return
		}
		if protocol.IsChange(text(m, "method")) {
			t.Errorf("the client is told of a replacement: %s", m)
		}
	}
}
