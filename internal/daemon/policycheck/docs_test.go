package policycheck_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/trust/policy"
)

// compile compiles a policy file of the documentation for a configuration with two
// servers, and fails on any problem.
func compile(t *testing.T, name, text string) *policy.Set {
	t.Helper()
	all := policy.List{Allow: []string{"*"}}
	s, problems := policycheck.Compile(policy.Options{UID: 1000, File: name, Text: []byte(text),
		Servers: map[string]policy.ServerRules{"docs": {Tools: all}, "notes": {Tools: policy.List{Allow: []string{"*"}, Deny: []string{"delete_note"}}}}})
	if len(problems) > 0 {
		t.Fatalf("%s: %+v", name, problems)
	}
	return s
}

// Every rule of docs/policy.md compiles without a warning.
func TestRulesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(b), "```cedar\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("%d rules", len(blocks))
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		compile(t, "docs.cedar", text)
	}
	_, tests, _ := strings.Cut(string(b), "```yaml\n")
	tests, _, _ = strings.Cut(tests, "```")
	if trials, problems := config.ParsePolicyTests("docs", []byte(tests)); len(trials) != 1 || len(problems) > 0 {
		t.Errorf("the test: %v", problems)
	}
}

// Each example policy compiles and passes its own tests.
func TestExamplePolicies(t *testing.T) {
	t.Parallel()
	Paths, err := filepath.Glob("../../../examples/policy/*.cedar")
	if err != nil || len(Paths) == 0 {
		t.Fatalf("%d examples, %v", len(Paths), err)
	}
	for _, path := range Paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tests, err := os.ReadFile(config.PolicyTestsFile(path))
		if err != nil {
			t.Fatal(err)
		}
		trials, problems := config.ParsePolicyTests(path, tests)
		if len(problems) > 0 || len(trials) == 0 {
			t.Fatalf("%s: %d tests, %v", path, len(trials), problems)
		}
		if failed := policycheck.Try(compile(t, path, string(text)), path, trials); len(failed) > 0 {
			t.Errorf("%s: %+v", path, failed)
		}
	}
}
