package relay

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/upstream"
)

var everyTransport = map[string]func(*testing.T, string, string) *script{"stdio": stdio, "http": web, "sse": events}

// guarded starts a legacy server and a session of one, which uses it, listens, and has a standby
// for its connection.
func guarded(t *testing.T, start func(*testing.T, string, string) *script, use func(*session), change ...func(*Server, *upstream.Definition)) (*script, *house, *session, *reply) {
	t.Helper()
	s := start(t, "s", "legacy")
	h := build(t, []Server{s.server(change...)})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	use(c)
	stream := c.listen()
	eventually(t, "the connection is guarded", func() bool { return h.guard(c) != nil })
	return s, h, c, stream
}

// A server that policy denies by now to each session that listens is not connected again, and
// is asked for no subscription.
func TestTheEndOfADeniedServerStartsNothing(t *testing.T) {
	t.Parallel()
	for kind, start := range everyTransport {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, h, c, _ := guarded(t, start, func(c *session) { c.call("resources/subscribe", `{"uri":"file:///a"}`) })
			guard, connected := h.guard(c), s.connected()
			h.forbid(`forbid (principal, action, resource == Server::"s");`)
			s.open()[len(s.open())-1].close()
			eventually(t, "the connection ends", func() bool { return !guard.conn.alive() })
			guard.revive() // what the standby does itself, to its end
			if n := s.connected(); n != connected {
				t.Errorf("%d connections, want %d", n, connected)
			}
			if n := len(s.got("resources/subscribe")); n != 1 {
				t.Errorf("%d subscriptions, want 1", n)
			}
		})
	}
}

// A subscription on the next connection is decided and recorded: policy may deny it by now.
func TestSubscriptionsAreDecidedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	for kind, start := range everyTransport {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, h, _, _ := guarded(t, start, func(c *session) {
				for _, name := range []string{"denied", "kept"} {
					c.call("resources/subscribe", `{"uri":"file:///`+name+`"}`)
				}
			})
			last := newest(s)
			h.forbid(`forbid (principal, action, resource == Resource::"s/file:///denied");`)
			h.relay.RestartServer("s")
			told := func() (uris []string) {
				for _, q := range s.got("resources/subscribe") {
					if q.n > last {
						uris = append(uris, text(string(q.Params), "uri"))
					}
				}
				return uris
			}
			eventually(t, "a subscription", func() bool { return len(told()) > 0 })
			for name, decision := range map[string]string{"denied": audit.Deny, "kept": audit.Allow} {
				h.recorded(name+" is decided again", func(r record) bool {
					again := decision == audit.Deny || h.count("resources/subscribe", "s/file:///"+name) == 2
					return again && r.Action == "resources/subscribe" && r.Resource == "s/file:///"+name && r.Decision == decision
				})
			}
			equal(t, "subscribed", join(told()), "file:///kept")
		})
	}
}

// A process that sessions share has one standby, however many of them listen and leave. The
// test runs alone, because it counts goroutines.
func TestSessionsThatLeaveKeepNoStandby(t *testing.T) {
	s := stdio(t, "s", "legacy")
	h := build(t, []Server{s.server()})
	before := standbys()
	var shared *hub
	for range 50 {
		c := h.legacy("/mcp/s", "uid:1000", `{}`)
		c.tool("t", "")
		if shared == nil {
			shared = &bound(h.sessionOf(c)).all()[0].link.hub
		}
		c.listen()
		eventually(t, "the process is guarded", func() bool { return shared.hears() && h.guard(c) != nil })
		c.end()
		eventually(t, "the session ends", func() bool { return !shared.hears() })
	}
	if n := standbys(); n > before+1 || s.connected() != 1 {
		t.Errorf("%d goroutines more wait for %d processes", n-before, s.connected())
	}
}

// hears reports whether a session listens.
func (h *hub) hears() bool { return h.watchers.listening() != nil }

// standbys counts the goroutines that wait for the end of a connection.
func standbys() int {
	buf := make([]byte, 4<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "internal/upstream.After.func")
}

// A standby ends with its server: one that is removed or replaced does not come back.
func TestAStandbyEndsWithItsServer(t *testing.T) {
	t.Parallel()
	for kind, start := range everyTransport {
		for _, change := range []string{"removed", "replaced"} {
			t.Run(kind+" "+change, func(t *testing.T) {
				t.Parallel()
				s, h, c, _ := guarded(t, start, func(c *session) { c.tool("t", "") }, instances("session"))
				guard := h.guard(c)
				var next []Server
				if change == "replaced" {
					next = append(next, s.server(instances("session")))
				}
				h.relay.SetServers(next)
				var over atomic.Bool
				go func() { guard.revive(); over.Store(true) }()
				eventually(t, "the standby ends", over.Load)
			})
		}
	}
}

// The standby of the open connection stays when the opening of an earlier one is noted late.
func TestALateOpeningTakesNoStandby(t *testing.T) {
	t.Parallel()
	for kind, start := range everyTransport {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, h, c, stream := guarded(t, start, func(c *session) { c.tool("t", "") })
			first := h.guard(c)
			h.relay.RestartServer("s")
			eventually(t, "the next one is guarded", func() bool { return h.guard(c) != nil && h.guard(c) != first })
			second := h.guard(c)
			first.hub.opened(first.conn)
			if h.guard(c) != second {
				t.Error("the standby was replaced")
			}
			last := newest(s)
			h.relay.RestartServer("s")
			eventually(t, "another connection", func() bool { return newest(s) > last && h.guard(c) != second })
			s.change(protocol.ResourcesChanged, `{"again":true}`)
			for field(stream.next(), "params", "again") == "" {
			}
		})
	}
}

// A session that opens its stream after a pause hears its server as soon as that runs again,
// without a call.
func TestAStreamAfterAPauseWaitsForItsServer(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for name, uri := range map[string]string{"subscribed": "file:///a", "not subscribed": ""} {
			t.Run(era+" "+name, func(t *testing.T) {
				t.Parallel()
				var down atomic.Bool
				var tried atomic.Int32
				s := stdio(t, "s", era)
				s.refuse = func(q *query) bool {
					if down.Load() {
						tried.Add(1)
						q.conn.close()
					}
					return down.Load()
				}
				h := build(t, []Server{s.server()})
				c := h.legacy("/mcp/s", "uid:1000", `{}`)
				c.call("tools/list", `{}`)
				if uri != "" {
					c.call("resources/subscribe", `{"uri":"`+uri+`"}`)
				}
				h.pause(c)
				before := len(s.watched())
				down.Store(true)
				stream := c.listen()
				eventually(t, "an attempt", func() bool { return tried.Load() > 0 && len(s.open()) == 0 })
				down.Store(false)
				eventually(t, "it hears the server", func() bool {
					told := uri == "" || strings.Contains(join(s.watched()[before:]), uri)
					return told && (era == "modern" && s.listening() == 1 || era == "legacy" && h.guard(c) != nil && h.guard(c).conn != nil)
				})
				s.change(protocol.PromptsChanged, `{}`)
				stream.nextOf(protocol.PromptsChanged)
			})
		}
	}
}
