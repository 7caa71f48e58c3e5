package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

const asking = `
@id("wide") permit (principal == Principal::"token:a", action, resource in Server::"s");
@id("careful") @ask("it writes") permit (principal == Principal::"token:a", action == Action::"tools/call", resource == Tool::"s/write");
@id("large") @ask("it is much") permit (principal == Principal::"token:a", action == Action::"tools/call", resource == Tool::"s/pay") when { context.args.amount > 10 };
`

// An act is held by a permit with @ask, also one that depends on arguments, and by
// tools.ask, even where another permit matches. Where it cannot be held it is denied.
func TestAnActIsHeldByRulesAndLists(t *testing.T) {
	t.Parallel()
	set, problems := policy.Compile(policy.Options{UID: 1, File: "p.cedar", Text: []byte(asking), Servers: map[string]policy.ServerRules{
		"s": {Tools: policy.List{Allow: []string{"*"}}, Held: []string{"drop*", policy.HeldDestructive}},
		"w": {Tools: policy.List{Allow: []string{"*"}}, Held: []string{policy.HeldWrites}},
		"d": {Tools: policy.List{Allow: []string{"*"}, Deny: []string{"x"}}, Held: []string{"*"}}}})
	if policycheck.Fatal(problems) {
		t.Fatal(problems)
	}
	safe := policy.Claims{Harmless: true, ReadOnly: true}
	for _, c := range []struct {
		server, name, args string
		claims             policy.Claims
		want               string
	}{
		{"s", "read", `{}`, safe, ""},
		{"s", "write", `{}`, safe, "careful"},
		{"s", "pay", `{"amount":10}`, safe, ""},
		{"s", "pay", `{"amount":11}`, safe, "large"},
		{"s", "pay", `not JSON`, safe, "large"},
		{"s", "drop_all", `{}`, safe, "mcpServers.s.doorward.tools.ask[0]"},
		{"s", "DROP_all", `{}`, safe, "mcpServers.s.doorward.tools.ask[0]"},
		{"s", "dr\u043ep_all", `{}`, safe, "mcpServers.s.doorward.tools.ask[0]"},
		{"s", "read", `{}`, policy.Claims{ReadOnly: true}, "mcpServers.s.doorward.tools.ask[1]"},
		{"s", "read", `{}`, policy.Claims{}, "mcpServers.s.doorward.tools.ask[1]"},
		{"w", "read", `{}`, safe, ""},
		{"w", "read", `{}`, policy.Claims{Harmless: true}, "mcpServers.w.doorward.tools.ask[0]"},
		{"d", "y", `{}`, safe, "mcpServers.d.doorward.tools.ask[0]"},
	} {
		q := policy.Request{Who: principal.New("token:a"), Action: "tools/call", Server: c.server, Name: c.name, Args: []byte(c.args), Tool: c.claims, Holds: true}
		d := set.Decide(q)
		if !d.Allow || d.Ask.Rule != c.want {
			t.Errorf("%s/%s %s %+v: %+v, want %q", c.server, c.name, c.args, c.claims, d, c.want)
		}
		q.Holds = false
		if got, want := set.Decide(q).Allow, c.want == ""; got != want {
			t.Errorf("%s/%s %s cannot be held: allowed %v", c.server, c.name, c.args, got)
		}
		q.Listing, q.Args = true, nil
		if !set.Decide(q).Allow {
			t.Errorf("%s/%s is not listed", c.server, c.name)
		}
	}
	denied := set.Decide(policy.Request{Who: principal.New("token:a"), Action: "tools/call", Server: "d", Name: "x", Holds: true})
	if diff := cmp.Diff(policy.Ask{}, denied.Ask); denied.Allow || diff != "" {
		t.Errorf("what is denied is not asked about: %+v", denied)
	}
}

// A permit with @ask for everything holds acts that name an object. It holds neither
// sessions nor acts of the operator.
func TestWhatCannotWaitIsNotHeld(t *testing.T) {
	t.Parallel()
	set, problems := policy.Compile(policy.Options{UID: 1, File: "p.cedar", Text: []byte(`@id("all") @ask("all of it") permit (principal, action, resource);`),
		Servers: map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}}}})
	if policycheck.Fatal(problems) {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		action, server, name string
		held                 bool
	}{
		{"initialize", "s", "", false}, {"tools/list", "s", "", false}, {"subscriptions/listen", "s", "", false}, {"initialize", "", "", false},
		{policy.ActionAdmin, "", "status", false}, {policy.ActionApprove, "", "approvals", false},
		{"tools/call", "s", "x", true}, {"resources/read", "s", "file:///x", true}, {"prompts/get", "s", "p", true}, {"agent.send", "", "", true},
		{"resources/subscribe", "s", "file:///x", true}, {"vendor/own", "s", "x", true},
	} {
		q := policy.Request{Who: principal.New("uid:1"), Action: c.action, Server: c.server, Name: c.name, Holds: true}
		if d := set.Decide(q); !d.Allow || (d.Ask.Rule != "") != c.held {
			t.Errorf("%+v: %+v", c, d)
		}
		if other := q; c.name == "" && c.server != "" { // a method that names no object and opens nothing
			other.Action = "vendor/own"
			if d := set.Decide(other); d.Allow {
				t.Errorf("%+v: %+v", other, d)
			}
		}
		q.Holds = false
		if d := set.Decide(q); d.Allow == c.held {
			t.Errorf("%+v, which nothing can hold: %+v", c, d)
		}
	}
}

// A forbid with @ask is refused: no answer could allow the act.
func TestAForbidHasNoQuestion(t *testing.T) {
	t.Parallel()
	_, problems := policycheck.Compile(policy.Options{UID: 1, File: "p.cedar", Text: []byte(`@ask("why") forbid (principal, action, resource);`)})
	if !policycheck.Fatal(problems) {
		t.Error("a forbid with @ask is taken")
	}
}
