package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A policy test is read with its principal, act, facts, arguments and expected
// answer.
func TestPolicyTests(t *testing.T) {
	t.Parallel()
	got, problems := config.ParsePolicyTests("p.tests.yaml", []byte(`# one
- name: writes
  as: uid:7
  action: tools/call
  resource: notes/add
  local: true
  confirmed: true
  facts:
    attested: {uid: 7, groups: [1, 2], label: x}
    verified: {scope: ["server:a", agent], oauth_scope: "a b"}
    observed: {exe: /usr/bin/x}
  args: {s: "é\"<\n", n: -1.50, i: 12, b: TRUE, z: ~, l: [1, [], {}], d: 2024-01-02, "": {"a b": 0}}
  expect: deny
  rule: r
- {as: token:t, action: admin, expect: allow}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	fact := func(name, value string, g principal.Grade) principal.Fact {
		return principal.Fact{Name: name, Value: value, Grade: g}
	}
	want := []policycheck.Trial{
		{Name: "writes", Line: 2, As: "uid:7", Action: "tools/call", Resource: "notes/add", Local: true, SameProgram: true,
			Facts: []principal.Fact{fact("uid", "7", principal.Attested), fact("groups", "1,2", principal.Attested), fact("label", "x", principal.Attested),
				fact("scope", "server:a,agent", principal.Verified), fact("oauth_scope", "a b", principal.Verified), fact("exe", "/usr/bin/x", principal.Observed)},
			Args: []byte(`{"s":"é\"\u003c\n","n":-1.50,"i":12,"b":true,"z":null,"l":[1,[],{}],"d":"2024-01-02","":{"a b":0}}`), Rule: "r"},
		{Line: 15, As: "token:t", Action: "admin", Allow: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// All problems of policy tests are reported at once, and the valid tests are kept.
func TestPolicyTestsProblems(t *testing.T) {
	t.Parallel()
	const good = "- {as: \"uid:1\", action: ping, expect: deny}\n"
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", ""},
		{"nothing", "# nothing\n", ""},
		{"mapping", "as: uid:1\n", "p:1: the file must be a list of tests"},
		{"syntax", "- as: [\n- x: ]\n", "p:1: this is not valid YAML"},
		{"no UTF-8", "- as: \xff\n", "p:1: this is not UTF-8 text"},
		{"item", good + "- text\n", "p:2: [1]: this must be a mapping"},
		{"missing", "- {as: \"uid:1\"}\n", "p:1: [0]: its key \"action\" is missing\np:1: [0]: its key \"expect\" is missing"},
		{"unknown", "- {as: \"uid:1\", action: ping, expect: deny, rules: x}\n", "p:1: [0].rules: unknown key; did you mean rule?"},
		{"twice", "- {as: \"uid:1\", action: ping, expect: deny, as: \"uid:2\"}\n", "p:1: [0].as: duplicate key"},
		{"principal", "- {as: root, action: ping, expect: deny}\n", "p:1: [0].as: no principal has this name"},
		{"expect", good + "- as: uid:1\n  action: ping\n  expect: denied\n", "p:4: [1].expect: this must be allow or deny"},
		{"local", "- {as: \"uid:1\", action: ping, expect: deny, local: \"yes\"}\n", "p:1: [0].local: this must be true or false"},
		{"grade", "- {as: \"uid:1\", action: ping, expect: deny, facts: {claimed: {name: x}}}\n", "p:1: [0].facts.claimed.name: claimed is not a grade that a rule can read"},
		{"fact", "- {as: \"uid:1\", action: ping, expect: deny, facts: {observed: {exepath: x}}}\n", "p:1: [0].facts.observed.exepath: there is no observed fact exepath"},
		{"fact of another grade", "- {as: \"uid:1\", action: ping, expect: deny, facts: {attested: {exe: x}}}\n", "p:1: [0].facts.attested.exe: the fact exe is never attested; it is observed"},
		{"fact of another form", "- {as: \"uid:1\", action: ping, expect: deny, facts: {attested: {uid: me}}}\n", "p:1: [0].facts.attested.uid: the fact uid is a number"},
		{"fact with values", "- {as: \"uid:1\", action: ping, expect: deny, facts: {attested: {uid: [1, 2]}}}\n", "p:1: [0].facts.attested.uid: the fact uid has one value"},
		{"fact without", "- {as: \"uid:1\", action: ping, expect: deny, facts: {attested: {uid: {}}}}\n", "p:1: [0].facts.attested.uid: this must be text, a whole number, or a list"},
		{"args", "- {as: \"uid:1\", action: ping, expect: deny, args: [1]}\n", "p:1: [0].args: this must be a mapping, not a list"},
		{"number", "- {as: \"uid:1\", action: ping, expect: deny, args: {n: 0x10}}\n", "p:1: [0].args.n: this number cannot be written so in JSON"},
		{"a comment that some end", "# all\u2028- as: x\n", "p:1: some parsers take U+2028 as a line end"},
		{"anchor", "- {as: \"uid:1\", action: ping, expect: deny, args: {n: &a 1}}\n", "p:1: [0].args.n: anchors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			trials, problems := config.ParsePolicyTests("p", []byte(c.content))
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			want := strings.Split(c.want, "\n")
			if c.want == "" {
				want = nil
			}
			for i := range want {
				if len(got) != len(want) || !strings.HasPrefix(got[i], want[i]) {
					t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
				}
			}
			if len(got) != len(want) || strings.HasPrefix(c.content, good) && len(trials) != 1 {
				t.Errorf("%d tests, problems %q", len(trials), got)
			}
		})
	}
}

// ReadPolicy refuses a missing policy file and one that others can write, as Load
// does: they could give themselves rights.
func TestReadPolicy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "p.cedar")
	c := &config.Config{Policy: path}
	if err := c.ReadPolicy(nil); err == nil || !strings.Contains(err.Error(), "there is no such file") {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(path, []byte("// x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadPolicy(nil); err != nil || string(c.PolicyText) != "// x" {
		t.Errorf("%q, %v", c.PolicyText, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadPolicy(nil); err == nil || !strings.Contains(err.Error(), "users other than its owner can write it") {
		t.Errorf("open to all: %v", err)
	}
	if got, problems := config.PolicyTests(path); got != nil || problems != nil {
		t.Errorf("no tests: %v, %v", got, problems)
	}
	if err := (&config.Config{}).ReadPolicy(nil); err != nil {
		t.Errorf("without a policy: %v", err)
	}
}
