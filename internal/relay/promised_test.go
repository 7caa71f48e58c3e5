package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/downstream/front"
)

// reload makes the relay have these servers, as a reload of the configuration does.
func (h *house) reload(servers ...Server) {
	h.relay.SetServers(servers)
	h.relay.Announce()
}

// fence skips what a session has been told so far.
func fence(session *front.Session, stream *reply) {
	stream.t.Helper()
	session.Notify("notifications/fence", nil)
	stream.nextOf("notifications/fence")
}

// The end of a server that a reload removes, and its return by a later reload, are announced to
// the sessions that have used it: to one that listens at once, to another when it opens its stream.
func TestAServerThatComesBackIsAnnounced(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		for path, prefix := range eachPath {
			for _, when := range []string{"listening", "not listening", "pausing"} {
				t.Run(era+path+" "+when, func(t *testing.T) {
					t.Parallel()
					s, again := stdio(t, "s", era), stdio(t, "s", era)
					h := build(t, []Server{s.server()})
					c := h.legacy(path, "uid:1000", `{}`)
					c.call("tools/list", `{}`)
					c.call("resources/subscribe", `{"uri":"`+prefix+`file:///a"}`)
					session, stream := h.sessionOf(c), (*reply)(nil)
					switch when {
					case "listening":
						stream = c.listen()
						eventually(t, "it listens", session.Listening)
					case "pausing":
						h.pause(c)
					}
					h.reload()
					if stream != nil {
						stream.nextOf(protocol.ToolsChanged)
						fence(session, stream)
					}
					h.reload(again.server())
					if stream == nil {
						stream = c.listen()
					}
					everything(t, stream, prefix+"file:///a")
				})
			}
		}
	}
}

// A session whose stream was closed while a reload replaced its server hears the new one from the
// time its stream opens, before it calls anything.
func TestAStreamThatOpensAfterAReplacementHearsTheNewServer(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		for path, prefix := range eachPath {
			t.Run(era+path, func(t *testing.T) {
				t.Parallel()
				s, again := stdio(t, "s", era), stdio(t, "s", era)
				h := build(t, []Server{s.server()})
				c := h.legacy(path, "uid:1000", `{}`)
				c.call("resources/subscribe", `{"uri":"`+prefix+`file:///a"}`)
				h.reload(again.server())
				stream := c.listen()
				everything(t, stream, prefix+"file:///a")
				change := func() { again.change(protocol.ResourceUpdated, `{"uri":"file:///a","x":1.0}`) }
				eventually(t, "the new server is subscribed to", func() bool {
					return len(again.got("resources/subscribe")) > 0 || again.listening() > 0
				})
				for change(); field(stream.nextOf(protocol.ResourceUpdated), "params", "x") == ""; change() {
				}
			})
		}
	}
}
