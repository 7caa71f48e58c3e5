//go:build interop

package interop

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestColdServersAreStartedOnce: four servers whose packages npx has to download first are
// each started once and not killed while a modern client waits for their tools. Afterwards
// npx still works with the same cache.
func TestColdServersAreStartedOnce(t *testing.T) {
	t.Parallel()
	p := coldServers(t)
	d := startPasted(t, p, doortest.Options{})
	argument, err := json.Marshal(map[string]any{"sdk": "v2", "era": "modern", "transport": "stdio", "command": d.Bin, "args": []string{"connect"},
		"env": fixture.EnvMap(d.Env()), "servers": slices.Collect(maps.Keys(p.Servers)), "limit": 2 * pastedLimit.Milliseconds()})
	must(t, err)
	cmd := exec.CommandContext(t.Context(), fixture.Node(t), fixture.Script(t, "clients", "cold.mjs"), string(argument))
	cmd.Env, cmd.Stderr = fixture.ClientEnv(t.TempDir()), os.Stderr
	out, err := cmd.Output()
	must(t, err)
	var got struct {
		Modern         bool
		First, Whole   int
		Missing, Names []string
	}
	must(t, json.Unmarshal(out, &got))
	t.Logf("measured: the first list of four cold servers after %d ms, all %d tools after %d ms", got.First, len(got.Names), got.Whole)
	if !got.Modern || len(got.Missing) > 0 {
		t.Errorf("modern %v, missing %v of %v", got.Modern, got.Missing, got.Names)
	}
	started, ended := lifecycle(d)
	for name := range p.Servers {
		if started[name] != 1 || len(ended[name]) != 0 {
			t.Errorf("%s was started %d times, and ended: %v", name, started[name], ended[name])
		}
	}
	d.Stop()
	for name, server := range p.Servers {
		if len(toolsOf(t, direct(t, p, server))) == 0 {
			t.Errorf("%s by npx alone has no tools", name)
		}
	}
}

// coldServers are four of the pasted servers for a user with an empty cache of packages.
// The registry and the certificates are those of the tester's npm configuration.
func coldServers(t *testing.T) fixture.Pasted {
	t.Helper()
	p := fixture.PastedServers(t)
	settings := "before=2026-11-23T00:00:00Z\nignore-scripts=true\nupdate-notifier=false\n"
	for _, key := range []string{"registry", "cafile"} {
		value, err := exec.Command("npm", "config", "get", key).Output()
		must(t, err)
		if text := strings.TrimSpace(string(value)); text != "null" && text != "" {
			settings += key + "=" + text + "\n"
		}
	}
	p.Home = t.TempDir()
	must(t, os.WriteFile(filepath.Join(p.Home, ".npmrc"), []byte(settings), 0o600))
	must(t, os.Mkdir(filepath.Join(p.Home, "Documents"), 0o700))
	var entries map[string]json.RawMessage
	must(t, json.Unmarshal(p.Text, &entries))
	four := words("everything filesystem memory sequential-thinking")
	for name := range entries {
		if !slices.Contains(four, name) {
			delete(entries, name)
			delete(p.Servers, name)
		}
	}
	var err error
	p.Text, err = json.Marshal(entries)
	must(t, err)
	return p
}

// lifecycle counts the starts of each server, and lists the ends of its processes.
func lifecycle(d *doortest.Daemon) (started map[string]int, ended map[string][]string) {
	started, ended = map[string]int{}, map[string][]string{}
	for _, line := range d.Stderr() {
		_, name, _ := strings.Cut(line, " server=")
		name, rest, _ := strings.Cut(name, " ")
		switch {
		case strings.Contains(line, `msg="child started"`):
			started[name]++
		case strings.Contains(line, `msg="child ended"`):
			ended[name] = append(ended[name], rest)
		}
	}
	return started, ended
}
