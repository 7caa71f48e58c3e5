package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
)

// A session keeps its subscriptions at a server whose definition is replaced.
func TestSubscriptionsAtAReplacedServer(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for path, prefix := range map[string]string{"/mcp/s": "", "/mcp": "doorward://s/"} {
			t.Run(era+path, func(t *testing.T) {
				t.Parallel()
				s := stdio(t, "s", era)
				h := build(t, []Server{s.server()})
				c := h.legacy(path, "uid:1000", `{}`)
				c.call("resources/subscribe", `{"uri":"`+prefix+`file:///a"}`)
				stream := c.listen()
				before := len(s.watched())
				h.relay.SetServers([]Server{s.server()})
				h.relay.Announce()
				c.call("tools/list", `{}`)
				eventually(t, "subscribed again", func() bool { return slices.Contains(s.watched()[before:], "file:///a") })
				s.change(protocol.ResourceUpdated, `{"uri":"file:///a"}`)
				equal(t, "a change", text(stream.nextOf(protocol.ResourceUpdated), "params", "uri"), prefix+"file:///a")
			})
		}
	}
}

// A session that paused and opens its stream again hears its servers without a call: changes
// of lists, and of the resources that it was subscribed to.
func TestAStreamAfterAPause(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for path, prefix := range map[string]string{"/mcp/s": "", "/mcp": "doorward://s/"} {
			for name, uri := range map[string]string{"subscribed": "file:///a", "not subscribed": ""} {
				t.Run(era+path+" "+name, func(t *testing.T) {
					t.Parallel()
					s := stdio(t, "s", era)
					h := build(t, []Server{s.server()})
					c := h.legacy(path, "uid:1000", `{}`)
					c.call("tools/list", `{}`)
					if uri != "" {
						c.call("resources/subscribe", `{"uri":"`+prefix+uri+`"}`)
					}
					before := len(s.watched())
					h.pause(c)
					stream := c.listen()
					eventually(t, "it hears the server", func() bool {
						return len(bound(h.sessionOf(c)).all()) == 1 && (era == "legacy" && h.guard(c) != nil || s.listening() == 1) && (uri == "" || slices.Contains(s.watched()[before:], uri))
					})
					s.change(protocol.ToolsChanged, `{}`)
					stream.nextOf(protocol.ToolsChanged)
					if uri != "" {
						s.change(protocol.ResourceUpdated, `{"uri":"`+uri+`"}`)
						equal(t, "a change", text(stream.nextOf(protocol.ResourceUpdated), "params", "uri"), prefix+uri)
					}
				})
			}
		}
	}
}

// pause ends the connections of a house whose only session makes no call.
func (h *house) pause(c *session) {
	h.t.Helper()
	eventually(h.t, "the session pauses", func() bool { _, idle := h.sessionOf(c).IdleSince(); return idle })
	b := h.relay.table.Load().byName["s"]
	h.relay.sessions.rest(time.Now().Add(time.Hour))
	eventually(h.t, "the connections end", func() bool { b.sweep(time.Now().Add(time.Hour)); return b.instances() == 0 })
}

// A process that sessions share is told the level of a session that joins it.
func TestTheLevelOfASessionThatJoins(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "principal", "shared"} {
		for _, how := range []string{"before its first call", "after a pause"} {
			t.Run(mode+" "+how, func(t *testing.T) {
				t.Parallel()
				s := talkative(t)
				h := build(t, []Server{s.server(instances(mode))})
				joins := h.legacy("/mcp", "uid:1000", `{}`)
				joins.call("logging/setLevel", `{"level":"debug"}`)
				if how == "after a pause" {
					joins.tool("s__t", "")
					h.pause(joins)
				}
				told := len(s.got("logging/setLevel"))
				h.legacy("/mcp", "uid:1000", `{}`).tool("s__t", "")
				equal(t, "without a level", join(levelsOf(s)[told:]), "")
				joins.tool("s__t", "")
				equal(t, "the process is told", join(levelsOf(s)[told:]), "debug")
			})
		}
	}
}

// levelsOf returns the levels that a server was told.
func levelsOf(s *script) (levels []string) {
	for _, q := range s.got("logging/setLevel") {
		levels = append(levels, text(q.raw, "params", "level"))
	}
	return levels
}
