//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// claude runs the real Claude Code in a project and home of its own, without telemetry
// and updates, and with proxies that do not exist.
func claude(t *testing.T, home, project string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fixture.Claude(t), args...)
	cmd.Dir = project
	cmd.Env = fixture.ClientEnv(home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("claude %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// connected fails the test unless `claude mcp list` shows the server as connected.
func connected(t *testing.T, list, name string) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^` + name + `: .* [✓✔] Connected$`).MatchString(list) {
		t.Errorf("%s is not connected:\n%s", name, list)
	}
}

// TestClaudeCode: Claude Code connects to Doorward from the user's file, written by
// `mcp add`, and from a project's .mcp.json, over each transport.
func TestClaudeCode(t *testing.T) {
	d := house{servers: map[string]server{
		"notes": stdio(fixture.Recorder(t, "legacy"), nil),
		"files": stdio(fixture.Filesystem(t, t.TempDir()), nil),
	}}.start(t)

	t.Run("mcp add", func(t *testing.T) {
		t.Parallel()
		home, project := t.TempDir(), t.TempDir()
		add := []string{"mcp", "add", "-s", "user", "door-stdio"}
		for _, pair := range d.Env() {
			add = append(add, "-e", pair)
		}
		claude(t, home, project, append(add, "--", d.Bin, "connect", "notes")...)
		claude(t, home, project, append(add[:4:4], "--transport", "http", "door-http", d.MCP("notes"))...)
		list := claude(t, home, project, "mcp", "list")
		connected(t, list, "door-stdio")
		connected(t, list, "door-http")
	})

	t.Run("project file", func(t *testing.T) {
		t.Parallel()
		home, project := t.TempDir(), t.TempDir()
		write(t, filepath.Join(home, ".claude", "settings.json"), map[string]any{"enableAllProjectMcpServers": true})
		write(t, filepath.Join(project, ".mcp.json"), map[string]any{"mcpServers": map[string]any{
			"one":      connectEntry(d, "notes"),
			"all":      connectEntry(d, ""),
			"http-one": map[string]any{"type": "http", "url": d.MCP("notes")},
			"http-all": map[string]any{"type": "http", "url": d.MCP("")},
			"sse-one":  map[string]any{"type": "sse", "url": endpoint(d, "sse", "notes")},
		}})
		list := claude(t, home, project, "mcp", "list")
		for _, name := range words("one all http-one http-all sse-one") {
			connected(t, list, name)
		}
	})
}

func connectEntry(d *doortest.Daemon, server string) map[string]any {
	return map[string]any{"command": d.Bin, "args": words("connect " + server), "env": fixture.EnvMap(d.Env())}
}

func write(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
