//go:build interop

package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestInstalledInClaudeCode: what `doorward install` writes is what Claude Code
// reads, in the user's file and in a project's, and `doorward uninstall` takes
// it away again.
func TestInstalledInClaudeCode(t *testing.T) {
	d := house{servers: map[string]server{}}.start(t)
	t.Run("user", func(t *testing.T) {
		t.Parallel()
		home, project := t.TempDir(), t.TempDir()
		onClient(t, d, home, project, "install", "claude-code", "--yes")
		connected(t, claudeHere(t, d, home, project, "mcp", "list"), "doorward")
		onClient(t, d, home, project, "uninstall", "claude-code", "--yes")
		if list := claudeHere(t, d, home, project, "mcp", "list"); named(list) {
			t.Errorf("still there:\n%s", list)
		}
	})
	t.Run("project", func(t *testing.T) {
		t.Parallel()
		home, project := t.TempDir(), t.TempDir()
		onClient(t, d, home, project, "install", "claude-code", "--project", "--yes")
		if list := claudeHere(t, d, home, project, "mcp", "list"); !named(list) {
			t.Errorf("not listed:\n%s", list)
		}
		onClient(t, d, home, project, "uninstall", "claude-code", "--project", "--yes")
		if _, err := os.Stat(filepath.Join(project, ".mcp.json")); !os.IsNotExist(err) {
			t.Errorf("the project's file is still there: %v", err)
		}
	})
}

// named looks for Doorward's line in what `claude mcp list` prints.
func named(list string) bool { return strings.Contains("\n"+list, "\ndoorward: ") }

// claudeHere runs Claude Code as in the environment of the daemon's user.
func claudeHere(t *testing.T, d *doortest.Daemon, home, project string, args ...string) string {
	t.Helper()
	return inClient(t, d, fixture.Claude(t), home, project, args...)
}

// onClient runs a doorward command on the files of a home.
func onClient(t *testing.T, d *doortest.Daemon, home, project string, args ...string) {
	t.Helper()
	inClient(t, d, d.Bin, home, project, args...)
}

// inClient runs a program in a project and a home, where doorward finds the
// daemon.
func inClient(t *testing.T, d *doortest.Daemon, program, home, project string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = project
	cmd.Env = fixture.ClientEnv(home)
	for _, pair := range d.Env() {
		if strings.HasPrefix(pair, "DOORWARD_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(program), args, err, out)
	}
	return string(out)
}
