package policy

import (
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// TestCorrespondence: the default policy decides by the facts about an addressee
// whether a principal may see it, send to it, and deliver without a hold.
func TestCorrespondence(t *testing.T) {
	t.Parallel()
	owner := principal.New("uid:1000").WithLocal()
	for _, c := range []struct {
		who           *principal.Principal
		own, near     bool
		send, deliver bool
	}{
		{owner, true, true, true, true},
		{owner, true, false, true, false},
		{owner, false, false, false, false},
		{principal.New("token:ci").WithLocal(), true, true, true, true},
		{principal.New("token:ci").WithLocal(), false, true, false, true},
		{principal.New("token:ci"), true, true, false, false}, // not on this machine
		{scoped("agent").WithLocal(), true, true, true, true},
		{scoped("server:notes").WithLocal(), true, true, false, false},
		{principal.New("uid:1001").WithLocal(), true, true, false, false},
		{principal.New(principal.LoopbackUnknown).WithLocal(), true, true, false, false},
	} {
		args := fmt.Appendf(nil, `{"to":{"principal":"uid:1000","kind":"uid","name":"b","namespace":"n","lineage":"unrelated","own":%t,"near":%t}}`, c.own, c.near)
		for action, want := range map[string]bool{AgentSee: c.send, AgentSend: c.send, AgentDeliver: c.deliver, AgentDelegate: false} {
			if d := house().Decide(Request{Who: c.who, Action: action, Args: args}); d.Allow != want {
				t.Errorf("%s %s own=%t near=%t: %t by %s", c.who.Name(), action, c.own, c.near, d.Allow, d.Rule)
			}
		}
	}
}

// TestOwnRulesAboutAddressees: rules of the operator allow sends that the default
// policy denies, and deny sends that it allows.
func TestOwnRulesAboutAddressees(t *testing.T) {
	t.Parallel()
	set, problems := Compile(Options{UID: 1000, File: "p.cedar", Text: []byte(`
permit (principal == Principal::"token:ci", action in [Action::"agent.see", Action::"agent.send"], resource)
when { context.args.to.principal == "uid:1000" };
forbid (principal, action == Action::"agent.send", resource)
when { context.args.to.name == "secretary" };
`)})
	if set == nil {
		t.Fatal(problems)
	}
	ci, owner := principal.New("token:ci").WithLocal(), principal.New("uid:1000").WithLocal()
	to := func(principal, name string, own bool) []byte {
		return fmt.Appendf(nil, `{"to":{"principal":%q,"name":%q,"own":%t}}`, principal, name, own)
	}
	for _, c := range []struct {
		who  *principal.Principal
		args []byte
		want bool
	}{
		{ci, to("uid:1000", "planner", false), true},
		{ci, to("uid:1001", "planner", false), false},
		{ci, to("uid:1000", "secretary", false), false},
		{owner, to("uid:1000", "secretary", true), false},
		{owner, to("uid:1000", "planner", true), true},
	} {
		if d := set.Decide(Request{Who: c.who, Action: AgentSend, Args: c.args}); d.Allow != c.want {
			t.Errorf("%s to %s: %t by %s", c.who.Name(), c.args, d.Allow, d.Rule)
		}
	}
}

// TestAuthorityNeedsARuleOfItsOwn: only a permit for agent.delegate alone allows
// that action. A permit for everything or for messaging does not.
func TestAuthorityNeedsARuleOfItsOwn(t *testing.T) {
	t.Parallel()
	args := []byte(`{"to":{"principal":"uid:1000","name":"b","own":true,"near":true},"from":{"name":"a"},"now":5}`)
	for text, want := range map[string]bool{
		`permit (principal == Principal::"uid:1000", action, resource);`:                                                           false,
		`permit (principal == Principal::"uid:1000", action in Action::"messaging", resource);`:                                    false,
		`permit (principal == Principal::"uid:1000", action in [Action::"agent.delegate", Action::"agent.send"], resource);`:       false,
		`permit (principal == Principal::"uid:1000", action == Action::"agent.delegate", resource);`:                               true,
		`permit (principal == Principal::"uid:1000", action == Action::"agent.delegate", resource) when { context.args.now < 6 };`: true,
		`permit (principal == Principal::"uid:1000", action == Action::"agent.delegate", resource) when { context.args.now < 5 };`: false,
	} {
		set, problems := Compile(Options{UID: 1000, File: "p.cedar", Text: []byte(text)})
		if set == nil {
			t.Fatal(problems)
		}
		if d := set.Decide(Request{Who: principal.New("uid:1000").WithLocal(), Action: AgentDelegate, Args: args}); d.Allow != want {
			t.Errorf("%s: %t by %s", text, d.Allow, d.Rule)
		}
	}
}
