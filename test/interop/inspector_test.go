//go:build interop

package interop

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/test/fixture"
)

// inspect runs one method of the Inspector's command-line client and returns
// the result that it prints.
func inspect(t *testing.T, era string, env []string, target []string, method ...string) map[string]any {
	t.Helper()
	argv := append(fixture.Inspector(t), "--protocol-era", era, "--format", "json", "-q")
	for _, pair := range env {
		argv = append(argv, "-e", pair) // the Inspector passes on no variable of its own
	}
	argv = append(append(append(argv, "--method"), method...), target...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = fixture.ClientEnv(t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		stderr := []byte{}
		if exit, ok := err.(*exec.ExitError); ok {
			stderr = exit.Stderr
		}
		t.Fatalf("inspector %v: %v\n%s%s", method, err, out, stderr)
	}
	var printed struct{ Result map[string]any }
	if err := json.Unmarshal(out, &printed); err != nil || printed.Result == nil {
		t.Fatalf("inspector %v printed %s", method, out)
	}
	// A gateway may lower caching hints.
	delete(printed.Result, "ttlMs")
	delete(printed.Result, "cacheScope")
	return printed.Result
}

var inspections = [][]string{
	{"tools/list"},
	{"resources/list"},
	{"resources/templates/list"},
	{"prompts/list"},
	{"tools/call", "--tool-name", "test_simple_text"},
	{"resources/read", "--uri", "test://static-text"},
	{"prompts/get", "--prompt-name", "test_prompt_with_arguments", "--prompt-args", "arg1=a", "arg2=b"},
}

// TestInspector: the Inspector prints the same of a server behind Doorward as of the
// server alone, in both eras, over HTTP and through `connect`.
func TestInspector(t *testing.T) {
	both := fixture.Everything(t)
	d := house{servers: map[string]server{"fixture": stdio([]string{both}, nil)}}.start(t)
	for _, era := range words("legacy modern") {
		for _, method := range inspections {
			t.Run(era+" "+method[0], func(t *testing.T) {
				t.Parallel()
				want := inspect(t, era, nil, []string{"--", both}, method...)
				doors := map[string]map[string]any{
					"http":    inspect(t, era, nil, []string{"--transport", "http", "--server-url", d.MCP("fixture")}, method...),
					"connect": inspect(t, era, d.Env(), []string{"--", d.Bin, "connect", "fixture"}, method...),
				}
				for door, got := range doors {
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s, -want +got:\n%s", door, diff)
					}
				}
			})
		}
	}
}
