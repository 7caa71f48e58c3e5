package onboard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/onboard"
)

// An environment file is imported with all forms of its lines, and only from inside the project.
func TestEnvironmentFileOfAProject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, "STOLEN=yes\n")
	write(filepath.Join(dir, "conf", ".env"), "# comment\n\nA=1\nexport B = 'two words' # end\nC=\"x\\ny\"\nD=plain # end\nE=${HOME} $x\nSET=file\nnot a line\n")
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, ".vscode", "mcp.json"), `{"servers": {
		"good": {"command": "x", "envFile": "${workspaceFolder}/conf/.env", "env": {"SET": "entry"}},
		"link": {"command": "x", "envFile": "link"}, "up": {"command": "x", "envFile": "../outside"},
		"abs": {"command": "x", "envFile": "`+outside+`"}, "none": {"command": "x", "envFile": "none"}, "dir": {"command": "x", "envFile": "conf"}}}`)
	home := filepath.Join(dir, "home")
	p := onboard.Places{OS: "linux", Dir: dir, Env: func(name string) (string, bool) { return home, name == "HOME" }}
	conf, err := onboard.Read(filepath.Join(dir, "doorward.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := onboard.Import{Places: p, Judge: accepted}.Plan(p.Sources([]*onboard.Client{onboard.Find("vscode")}), conf)
	if err != nil {
		t.Fatal(err)
	}
	text := string(plan.Change.After)
	var got struct {
		Servers map[string]struct{ Env map[string]string } `yaml:"mcpServers"`
	}
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "1", "B": "two words", "C": "x\ny", "D": "plain", "E": "$${HOME} $x", "SET": "entry"}
	if diff := cmp.Diff(want, got.Servers["good"].Env); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(text, "STOLEN") || len(got.Servers) != 6 {
		t.Errorf("values from outside the project, or a server is missing:\n%s", text)
	}
	notes := strings.Join(plan.Notes, "\n")
	for _, part := range []string{"good of vscode: envFile ${workspaceFolder}/conf/.env: 6 values are imported as they are now", "1 lines are not NAME=VALUE",
		"link of vscode: envFile is not imported (", "up of vscode: envFile is not imported (", "abs of vscode: envFile is not imported (",
		"none of vscode: envFile is not imported (it does not exist)", "dir of vscode: envFile is not imported (it is not a file"} {
		if !strings.Contains(notes, part) {
			t.Errorf("no note %q in\n%s", part, notes)
		}
	}
}
