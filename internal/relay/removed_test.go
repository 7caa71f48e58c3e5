package relay

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/test/policytest"
)

// configure makes the relay have these servers, as a reload does: first the policy, which denies
// what is not configured, then the servers.
func (h *house) configure(servers ...Server) {
	h.permit(servers...)
	h.reload(servers...)
}

// permit makes the first half of configure.
func (h *house) permit(servers ...Server) {
	h.t.Helper()
	rules := make(map[string]policy.ServerRules)
	for _, s := range servers {
		rules[s.Name] = policy.ServerRules{Tools: everyTool, Ask: elicitation}
	}
	h.gate.SetPolicy(policytest.New(h.t, 1000, rules))
}

// A subscription of a session that is set up again outlives the removal of its server, at any time
// of the setting up: the client hears the server when it is configured again.
func TestASubscriptionOutlivesTheRemovalOfItsServer(t *testing.T) {
	t.Parallel()
	const uri = "file:///a"
	begun := func(s *script) bool { return len(s.open()) > 0 }
	subscribed := func(h *house, c *session) bool {
		all := bound(h.sessionOf(c)).all()
		return len(all) == 1 && all[0].subscribed()[uri]
	}
	for when, remove := range map[string]func(*house, *session, *script){
		"after the dial has failed": func(h *house, c *session, s *script) {
			eventually(h.t, "it begins", func() bool { return begun(s) })
			s.open()[0].close()
			eventually(h.t, "it is taken up", func() bool { return subscribed(h, c) })
			h.configure()
		},
		"during the dial": func(h *house, _ *session, s *script) {
			eventually(h.t, "it begins", func() bool { return begun(s) })
			h.configure()
			close(s.proceed)
		},
		"after the dial has succeeded": func(h *house, c *session, s *script) {
			close(s.proceed)
			eventually(h.t, "it is taken up", func() bool { return subscribed(h, c) && len(s.watched()) > 1 })
			h.configure()
		},
		"while the dial succeeds": func(h *house, _ *session, s *script) {
			eventually(h.t, "it begins", func() bool { return begun(s) })
			h.permit()
			close(s.proceed)
			h.recorded("policy denies it", func(r record) bool { return r.Action == "resources/subscribe" && r.Decision == "deny" })
			h.reload()
		},
	} {
		for _, era := range eachEra {
			for path, prefix := range eachPath {
				t.Run(fmt.Sprint(when, " ", era, path), func(t *testing.T) {
					t.Parallel()
					s := stdio(t, "s", era)
					var slow atomic.Bool
					s.refuse = func(q *query) bool {
						if slow.Load() {
							q.arrive()
						}
						return false
					}
					h := build(t, []Server{s.server()})
					c := h.legacy(path, "token:a", `{}`)
					c.call("resources/subscribe", `{"uri":"`+prefix+uri+`"}`)
					h.pause(c)
					eventually(t, "its program ends", func() bool { return len(s.open()) == 0 })
					slow.Store(true)
					stream := c.listen()
					remove(h, c, s)
					again := stdio(t, "s", era)
					h.configure(again.server())
					eventually(t, "it is subscribed again", func() bool { return slices.Contains(again.watched(), uri) })
					change := func() { again.change(protocol.ResourceUpdated, `{"uri":"`+uri+`","x":1.0}`) }
					for change(); field(stream.nextOf(protocol.ResourceUpdated), "params", "x") == ""; change() {
					}
				})
			}
		}
	}
}

// A subscription that policy refuses while its server is configured is given up: no later
// connection has it.
func TestASubscriptionThatPolicyRefusesIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "sessions")
			first := build(t, []Server{stdio(t, "s", era).server()}, keeping(t, dir))
			c := first.legacy("/mcp/s", "token:a", `{}`)
			c.call("resources/subscribe", `{"uri":"file:///a"}`)
			c.call("resources/subscribe", `{"uri":"file:///b"}`)
			first.door.Close()

			s, again := stdio(t, "s", era), stdio(t, "s", era)
			c.house = build(t, []Server{s.server()}, keeping(t, dir))
			c.forbid(`forbid (principal, action, resource == Resource::"s/file:///a");`)
			c.listen()
			eventually(t, "the other one is subscribed", func() bool { return slices.Contains(s.watched(), "file:///b") })
			c.configure(again.server())
			eventually(t, "the other one is subscribed again", func() bool { return slices.Contains(again.watched(), "file:///b") })
			equal(t, "subscribed", join(slices.Compact(again.watched())), "file:///b")
		})
	}
}
