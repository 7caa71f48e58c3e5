package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/test/policytest"
)

// A listen on the aggregate hears every server that its client may use, after each change of
// the servers or of the policy: if the servers of the client have changed, it is told to list
// again and begins a new listen; otherwise its listen goes on.
func TestAListenOnTheAggregateFollowsTheServers(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"modern", "legacy"} {
		for name, c := range map[string]struct {
			old, next []string // servers; a number behind the name is a definition
			hidden    string   // a server that policy shows only after the change
			ends      bool
		}{
			"one is added":      {old: []string{"a"}, next: []string{"a", "b"}, ends: true},
			"one is replaced":   {old: []string{"a", "b"}, next: []string{"a", "b2"}, ends: true},
			"one is taken away": {old: []string{"a", "b"}, next: []string{"a"}, ends: true},
			"one is shown":      {old: []string{"a", "b"}, next: []string{"a", "b"}, hidden: "b", ends: true},
			"none changes":      {old: []string{"a", "b"}, next: []string{"a", "b"}},
		} {
			t.Run(era+" "+name, func(t *testing.T) {
				t.Parallel()
				followed(t, era, c.old, c.next, c.hidden, c.ends)
			})
		}
	}
}

func followed(t *testing.T, era string, old, next []string, hidden string, ends bool) {
	scripts := map[string]*script{"a": web(t, "a", era), "b": web(t, "b", era)}
	defined := map[string]Server{"a": scripts["a"].server(), "b": scripts["b"].server(), "b2": scripts["b"].server()}
	of := func(names []string) (out []Server) {
		for _, n := range names {
			out = append(out, defined[n])
		}
		return out
	}
	h := build(t, of(old))
	for _, s := range scripts {
		h.rules[s.name] = policy.ServerRules{Tools: everyTool, Ask: elicitation}
	}
	if hidden != "" {
		h.forbid(`forbid (principal, action, resource == Server::"` + hidden + `");`)
	}
	m := h.modern("/mcp", "uid:1000")
	filter := `{"toolsListChanged":true,"resourceSubscriptions":["doorward://a/file:///x","doorward://b/file:///x"]}`
	r, _ := m.subscribe(filter)
	h.gate.SetPolicy(policytest.New(t, 1000, h.rules))
	h.relay.SetServers(of(next))
	h.relay.Announce()
	equal(t, "told to list", text(r.next(), "method"), protocol.ToolsChanged)
	if ends {
		for _, name := range old {
			if name != hidden {
				equal(t, "a resource that may have changed", text(r.next(), "params", "uri"), "doorward://"+name+"/file:///x")
			}
		}
		equal(t, "it is over", text(r.next(), "method"), "notifications/cancelled")
		contains(t, "result", r.next(), `"resultType":"complete"`)
		r, _ = m.subscribe(filter)
	}
	for _, name := range next {
		s := scripts[name[:1]]
		s.change(protocol.ResourceUpdated, `{"uri":"file:///x"}`)
		equal(t, "a resource of "+name, text(r.nextOf(protocol.ResourceUpdated), "params", "uri"), "doorward://"+s.name+"/file:///x")
		s.change(protocol.ToolsChanged, `{}`)
		equal(t, "the list of "+name, text(r.nextOf(protocol.ToolsChanged), "method"), protocol.ToolsChanged)
	}
}
