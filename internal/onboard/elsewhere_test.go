package onboard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/onboard"
)

// homeOf makes a home directory with files, in whose texts HOME is the directory.
func homeOf(t *testing.T, files map[string]string) string {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "HOME", home)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// planIn plans the import of clients in a directory; conf is the text of the configuration.
func planIn(t *testing.T, home, dir, conf string, refer func(string, string) string, clients ...string) onboard.Plan {
	t.Helper()
	p := onboard.Places{OS: "linux", Dir: dir, Env: func(name string) (string, bool) {
		if name == "HOME" {
			return home, true
		}
		return "", false
	}}
	path := filepath.Join(t.TempDir(), "doorward.yaml")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := onboard.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []*onboard.Client
	for _, name := range clients {
		all = append(all, onboard.Find(name))
	}
	plan, err := onboard.Import{Places: p, Judge: accepted, Refer: refer}.Plan(p.Sources(all), own)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

const oneServer = `{"mcpServers": {"notes": {"command": "notes"}}}`

// TestAHomeIsNoProjectOfItsOwn: in the home directory the file of the user is at the place
// of the project's, also under another name of the directory, and is read once.
func TestAHomeIsNoProjectOfItsOwn(t *testing.T) {
	home := homeOf(t, map[string]string{".cursor/mcp.json": oneServer, ".codex/config.toml": "[mcp_servers.everything]\ncommand = \"npx\"\n"})
	link := filepath.Join(t.TempDir(), "home")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	want := "mcpServers:\n  notes:\n    command: notes\n  everything:\n    command: npx\n"
	for _, dir := range []string{home, link} {
		plan := planIn(t, home, dir, "", nil, "cursor", "codex")
		if diff := cmp.Diff(want, string(plan.Change.After)); diff != "" {
			t.Errorf("in %s (-want +got):\n%s", dir, diff)
		}
		if len(plan.Notes) > 0 {
			t.Errorf("in %s notes: %q", dir, plan.Notes)
		}
	}
}

// TestServersOfOtherProjectsAreNoted: Claude Code has the servers of single projects in the
// file of the user. Those of other directories are not imported, and the note names the
// directories that exist, as long as the configuration lacks a server of them.
func TestServersOfOtherProjectsAreNoted(t *testing.T) {
	home := homeOf(t, map[string]string{"a/x": "", "b/x": "", "none/x": "",
		".claude.json": `{"projects": {"HOME/a": {"mcpServers": {"one": {"command": "one"}}}, "HOME/b": {"mcpServers": {"two": {"command": "two"}}},
			"HOME/none": {"mcpServers": {}}, "HOME/gone": {"mcpServers": {"three": {"command": "three"}}}}}`})
	const note = "the servers that claude-code has for single projects are not imported; run doorward import in their directories: "
	one := "mcpServers:\n  one:\n    command: one\n    cwd: " + home + "/a\n"
	for _, tc := range []struct {
		dir, conf string
		want      []string
	}{
		{home, "", []string{note + home + "/a, " + home + "/b"}},
		{home, one, []string{note + home + "/b"}},
		{filepath.Join(home, "a"), "", []string{note + home + "/b"}},
		{filepath.Join(home, "b"), one, nil},
	} {
		plan := planIn(t, home, tc.dir, tc.conf, nil, "claude-code")
		if diff := cmp.Diff(tc.want, plan.Notes); diff != "" {
			t.Errorf("in %s (-want +got):\n%s", tc.dir, diff)
		}
	}
}

// TestAClientWithoutAFileIsNoted: an import of a named client that has none of its files says so.
func TestAClientWithoutAFileIsNoted(t *testing.T) {
	home := homeOf(t, map[string]string{".cursor/mcp.json": oneServer})
	plan := planIn(t, home, t.TempDir(), "", nil, "cursor", "goose")
	if diff := cmp.Diff([]string{"goose has no file here: " + home + "/.config/goose/config.yaml"}, plan.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// TestSecretsOfAnImportedServerAreNoted: an import that moves secrets does not change a server
// that was imported before, and says which values stay in the configuration.
func TestSecretsOfAnImportedServerAreNoted(t *testing.T) {
	home := homeOf(t, map[string]string{".cursor/mcp.json": `{"mcpServers": {"notes": {"command": "notes", "env": {"API_KEY": "abcdef0123456789"}}}}`})
	first := planIn(t, home, t.TempDir(), "", nil, "cursor")
	refer := func(string, string) string { return "${file:/x}" }
	again := planIn(t, home, t.TempDir(), string(first.Change.After), refer, "cursor")
	want := []string{"notes is in the configuration already, with values that look like secrets: API_KEY; remove the server there and import it again"}
	if diff := cmp.Diff(want, again.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if plain := planIn(t, home, t.TempDir(), string(first.Change.After), nil, "cursor"); len(plain.Notes) > 0 {
		t.Errorf("without --secrets there are notes: %q", plain.Notes)
	}
}
