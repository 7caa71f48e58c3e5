package policy

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// started is an agent that the daemon started for parent.
func started(parent *principal.Principal, rights string) *principal.Principal {
	return principal.New("spawn:01A", principal.Fact{Name: "scope", Value: rights, Grade: principal.Verified}).WithLocal().WithParent(parent)
}

// spawnPolicy permits agents more than their rights, and forbids their parents
// something.
const spawnPolicy = `
@id("generous") permit (principal in Kind::"spawn", action, resource);
@id("no-ci") forbid (principal == Principal::"token:ci", action == Action::"tools/call", resource == Tool::"notes/delete");
@id("trusted-program") forbid (principal in Kind::"uid", action == Action::"tools/call", resource == Tool::"notes/confirmed")
unless { context.observed has exe && context.observed.exe == "/usr/bin/agent" };`

func TestAnAgentMayDoWhatItsRightsAndItsParentAllow(t *testing.T) {
	t.Parallel()
	s := with(t, spawnPolicy)
	owner := principal.New("uid:1000", principal.Fact{Name: "exe", Value: "/usr/bin/agent", Grade: principal.Observed}).WithLocal()
	ci := principal.New("token:ci").WithLocal()
	narrow := principal.New("token:narrow", principal.Fact{Name: "scope", Value: "agent,tool:notes/read", Grade: principal.Verified}).WithLocal()
	const call = "tools/call"
	for _, c := range []struct {
		what                 string
		who                  *principal.Principal
		action, server, name string
		allow                bool
		rule                 string
	}{
		{"a right", started(owner, "server:notes"), call, "notes", "delete", true, "generous"},
		{"no right", started(owner, "tool:notes/read"), call, "notes", "delete", false, "default.spawn-rights"},
		{"no right on a server, against a permit of one's own", started(owner, ""), "initialize", "notes", "", false, "default.spawn-rights"},
		{"messaging without a word", started(owner, ""), "agent.register", "", "", true, "generous"},
		{"the tools of messaging", started(owner, ""), call, "agent", "send", true, "generous"},
		{"instructions without the word", started(owner, ""), "instructions.read", "", "", false, "default.spawn-rights"},
		{"administration, however it is worded", started(owner, "admin"), ActionAdmin, "", "status", false, "default.spawn-rights"},
		{"the parent is forbidden it", started(ci, "server:notes"), call, "notes", "delete", false, "no-ci"},
		{"the parent may do it", started(ci, "server:notes"), call, "notes", "read", true, "generous"},
		{"the parent's scope is narrower", started(narrow, "server:notes"), call, "notes", "delete", false, "token.scope"},
		{"a grandparent's scope is narrower", started(started(narrow, "server:notes"), "server:notes"), call, "notes", "delete", false, "token.scope"},
		{"the parent agent's rights are narrower", started(started(owner, "tool:notes/read"), "server:notes"), call, "notes", "delete", false, "default.spawn-rights"},
		{"a parent that is nobody", started(nil, "server:notes"), call, "notes", "read", false, "default.nobody"},
		{"a parent whose name is no name", started(principal.New("user:x"), "server:notes"), call, "notes", "read", false, "default.nobody"},
		{"what the parent's program was allowed, for the parent", owner, call, "notes", "confirmed", true, "default.owner"},
		{"what the parent's program was allowed is not its agent's", started(owner, "server:notes"), call, "notes", "confirmed", false, "trusted-program"},
	} {
		q := Request{Who: c.who, Action: c.action, Server: c.server, Name: c.name, SameProgram: true}
		for range 2 { // the second time from the cache
			if d := s.Decide(q); d.Allow != c.allow || d.Rule != c.rule {
				t.Errorf("%s: allow=%v by %s, want %v by %s", c.what, d.Allow, d.Rule, c.allow, c.rule)
			}
		}
	}
}

// Without a policy file an agent is decided by the default rules, within its verified
// rights and on this host.
func TestTheDefaultPolicyOfStartedAgents(t *testing.T) {
	t.Parallel()
	s := with(t, "")
	owner := principal.New("uid:1000").WithLocal()
	for name, rule := range map[string]string{"read": "default.spawn", "delete": "default.spawn-rights"} {
		d := s.Decide(Request{Who: started(owner, "tool:notes/read"), Action: "tools/call", Server: "notes", Name: name})
		if d.Rule != rule || d.Allow != (name == "read") {
			t.Errorf("%s: %+v, want %s", name, d, rule)
		}
	}
	remote := principal.New("spawn:01A", principal.Fact{Name: "scope", Value: "", Grade: principal.Verified}).WithParent(owner)
	if d := s.Decide(Request{Who: remote, Action: "agent.register"}); d.Allow {
		t.Errorf("an agent off this host may message: %+v", d)
	}
	claimed := principal.New("spawn:01A", principal.Fact{Name: "scope", Value: "server:notes", Grade: principal.Claimed}).WithLocal().WithParent(owner)
	if d := s.Decide(Request{Who: claimed, Action: "tools/call", Server: "notes", Name: "read"}); d.Allow {
		t.Errorf("a claimed right allows: %+v", d)
	}
}

// Two agents that differ in their parent alone do not share a decision.
func TestTheCacheTellsParentsApart(t *testing.T) {
	t.Parallel()
	s := with(t, spawnPolicy)
	owner, ci := principal.New("uid:1000").WithLocal(), principal.New("token:ci").WithLocal()
	if started(owner, "server:notes").Identity() == started(ci, "server:notes").Identity() {
		t.Fatal("equal identities of agents with different parents")
	}
	for range 3 {
		for parent, allow := range map[*principal.Principal]bool{owner: true, ci: false} {
			q := Request{Who: started(parent, "server:notes"), Action: "tools/call", Server: "notes", Name: "delete"}
			if d := s.Decide(q); d.Allow != allow {
				t.Errorf("for %s: %+v", parent.Name(), d)
			}
		}
	}
}
