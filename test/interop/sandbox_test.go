//go:build interop

package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestRealServersAreContained: the public servers work under sandbox: contain and under
// strict, and every measure is enforced on them.
func TestRealServersAreContained(t *testing.T) {
	t.Parallel()
	modules := fixture.Module(t, "@modelcontextprotocol")
	for mode, more := range map[string]map[string]any{
		"contain": {"sandbox": "contain"},
		"strict":  {"sandbox": "strict", "read": []string{filepath.Dir(modules)}, "network": []int{443}},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			folder, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]any{"write": []string{folder}}
			for key, value := range more {
				files[key] = value
			}
			d := house{servers: map[string]server{
				"everything": stdio(fixture.PublicEverything(t, "stdio"), more),
				"files":      stdio(fixture.Filesystem(t, folder), files),
			}}.start(t)
			say(t, d, "Echo: hello", "everything", "echo", "message=hello")
			say(t, d, "", "files", "write_file", "path="+filepath.Join(folder, "x"), "content=written inside")
			say(t, d, "written inside", "files", "read_text_file", "path="+filepath.Join(folder, "x"))
			if b, err := os.ReadFile(filepath.Join(folder, "x")); string(b) != "written inside" {
				t.Errorf("outside: %q, %v", b, err)
			}
			measures(t, d, mode)
		})
	}
}

func say(t *testing.T, d *doortest.Daemon, want string, args ...string) {
	t.Helper()
	out, err := d.Command(append([]string{"call"}, args...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%s: %v, %s", strings.Join(args, " "), err, out)
	}
}

// measures checks that every measure is enforced on every process, except the limits of
// memory and processes, which depend on the machine.
func measures(t *testing.T, d *doortest.Daemon, mode string) {
	t.Helper()
	out, err := d.Command("status", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	type measure struct{ Name, State, Detail string }
	var s struct {
		Servers []struct {
			Name, Sandbox string
			Containment   []measure
			Processes     []struct {
				Sandbox     string
				Containment []measure
			}
		}
	}
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatal(err)
	}
	for _, v := range s.Servers {
		if !strings.HasPrefix(v.Sandbox, mode) || len(v.Processes) == 0 {
			t.Errorf("%s: sandbox %q, processes %v", v.Name, v.Sandbox, v.Processes)
		}
		for _, p := range v.Processes {
			if len(p.Containment) < 12 {
				t.Errorf("%s: %v", v.Name, p.Containment)
			}
			for _, m := range p.Containment {
				if m.State != "enforced" && m.Name != "memory limit" && m.Name != "process limit" {
					t.Errorf("%s: %v", v.Name, m)
				}
			}
		}
	}
}
