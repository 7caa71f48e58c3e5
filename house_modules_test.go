package doorward_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// forTests are the modules that only tests use. What other programs of the repository use is
// required by modules of their own.
var forTests = map[string]bool{"github.com/google/go-cmp": true}

// TestTheProgramUsesEachRequiredModule: each module that go.mod requires directly is a part of
// the program on Linux or macOS, but for those of forTests. A user of the program or of package
// client has no other dependencies to judge.
func TestTheProgramUsesEachRequiredModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Tool) > 0 {
		t.Errorf("go.mod has the tool %s: it belongs to a module of its own", file.Tool[0].Path)
	}
	used := modules(t, "linux")
	for path := range modules(t, "darwin") {
		used[path] = true
	}
	for _, r := range file.Require {
		if path := r.Mod.Path; !r.Indirect && used[path] == forTests[path] {
			t.Errorf("%s: the program uses it: %v, in forTests: %v", path, used[path], forTests[path])
		}
	}
}

// modules returns the modules of the program's packages on a system. The tag supervisor embeds
// a file that make build makes, so that file may be missing.
func modules(t *testing.T, system string) map[string]bool {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-tags", "supervisor", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/doorward")
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := make(map[string]bool)
	for _, path := range strings.Fields(string(out)) {
		all[path] = true
	}
	return all
}
