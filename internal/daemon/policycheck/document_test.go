package policycheck

import (
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Document gives the whole policy as Cedar text. Compiled as a policy file for a
// server without lists, the text decides like the original policy.
func TestDocumentIsThePolicy(t *testing.T) {
	t.Parallel()
	o := policy.Options{UID: 1000, File: "policy.cedar", Text: []byte(`@id("mine") forbid (principal, action, resource) when { resource.name == "mine" };`),
		Servers: map[string]policy.ServerRules{"notes": {Tools: policy.List{Allow: []string{`a"*`, `\*b`, "*\n*", `é*`, "\x01", "plain"},
			Deny: []string{`*\`, `"`, "*secret*", "\u202e*"}}, Ask: policy.List{Allow: []string{"roots"}}}}}
	s, problems := Compile(o)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	text := Document(o)
	var all, builtin cedar.PolicyList
	if err := all.UnmarshalCedar(text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := builtin.UnmarshalCedar(policy.Default()); err != nil {
		t.Fatal(err)
	}
	if lists := policy.ListRules(o.Servers); len(lists) < 5 || len(all) != len(builtin)+len(lists)+1 {
		t.Fatalf("%d rules in the text, in force are %d, %d and one of the file", len(all), len(builtin), len(lists))
	}
	again, problems := policy.Compile(policy.Options{UID: 1000, File: "again.cedar", Text: []byte(strings.ReplaceAll(string(text), `@id("`, `@id("again.`)),
		Servers: map[string]policy.ServerRules{"notes": {Tools: policy.List{Allow: []string{"*"}}, Ask: policy.List{Allow: []string{"*"}}}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, q := range []policy.Request{{Action: "tools/call"}, {Action: "prompts/get"}, {Action: policy.AskRoots}, {Action: policy.AskSampling}} {
		for _, name := range []string{`a"x`, `*b`, `\*b`, `\xb`, "a\nb", "é", "éa", "\x01", "plain", `a\`, `"`, "asecretb", "\u202ea", "", "mine", "x"} {
			for _, who := range []string{"uid:1000", "uid:1001", "token:ci", "loopback:unknown", "spawn:a"} {
				q.Who, q.Server, q.Name = principal.New(who), "notes", name
				if a, b := s.Decide(q), again.Decide(q); a.Allow != b.Allow {
					t.Errorf("%s %s %q: %v by %s, as text %v by %s", who, q.Action, name, a.Allow, a.Rule, b.Allow, b.Rule)
				}
			}
		}
	}
}
