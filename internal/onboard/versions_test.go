package onboard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/onboard"
)

// homeWith makes a home directory with files, each of which is empty.
func homeWith(t *testing.T, files ...string) string {
	t.Helper()
	home := t.TempDir()
	for _, name := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// placesIn are those of a home on Linux, with one more variable.
func placesIn(home, set, value string) onboard.Places {
	return onboard.Places{OS: "linux", Dir: filepath.Join(home, "project"), Env: func(name string) (string, bool) {
		switch name {
		case "HOME":
			return home, true
		case set:
			return value, value != ""
		}
		return "", false
	}}
}

const (
	clineNow = ".cline/data/settings/cline_mcp_settings.json"
	clineOld = ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
	antiNow  = ".gemini/config/mcp_config.json"
	antiOld  = ".gemini/antigravity/mcp_config.json"
)

// TestTheFileOfTheVersionThatIsThereIsUsed: the file of an older version is edited where it
// alone exists, and where a variable of the client is set, the file that it names.
func TestTheFileOfTheVersionThatIsThereIsUsed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		client, set, value string
		files              []string
		want               string
	}{
		{"cline", "", "", nil, clineNow},
		{"cline", "", "", []string{clineOld}, clineOld},
		{"cline", "", "", []string{clineOld, clineNow}, clineNow},
		{"cline", "CLINE_MCP_SETTINGS_PATH", "own/servers.json", []string{clineOld, clineNow}, "own/servers.json"},
		{"cline", "CLINE_DATA_DIR", "own", []string{clineOld}, "own/settings/cline_mcp_settings.json"},
		{"cline", "CLINE_DIR", "own", []string{clineNow}, "own/data/settings/cline_mcp_settings.json"},
		{"antigravity", "", "", nil, antiNow},
		{"antigravity", "", "", []string{antiOld}, antiOld},
		{"antigravity", "", "", []string{antiOld, antiNow}, antiNow},
		{"codex", "CODEX_HOME", "own", []string{".codex/config.toml"}, "own/config.toml"},
		{"claude-code", "CLAUDE_CONFIG_DIR", "own", []string{".claude.json"}, "own/.claude.json"},
	} {
		home := homeWith(t, tc.files...)
		got, err := placesIn(home, tc.set, filepath.Join(home, tc.value)).User(onboard.Find(tc.client))
		if err != nil || got != filepath.Join(home, tc.want) {
			t.Errorf("%s with %q and %v: %s, %v", tc.client, tc.set, tc.files, strings.TrimPrefix(got, home+"/"), err)
		}
	}
}

// TestImportReadsTheFilesOfBothVersions: import reads the files of two versions of
// Antigravity, which can be installed beside each other, and only the newer file of Cline,
// which takes its old file over by itself.
func TestImportReadsTheFilesOfBothVersions(t *testing.T) {
	t.Parallel()
	for client, want := range map[string][]string{"antigravity": {antiNow, antiOld, "project/.agents/mcp_config.json"}, "cline": {clineNow}} {
		home := homeWith(t, antiNow, antiOld, clineNow, clineOld)
		var got []string
		for _, s := range placesIn(home, "", "").Sources([]*onboard.Client{onboard.Find(client)}) {
			got = append(got, strings.TrimPrefix(s.Path, home+"/"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", client, diff)
		}
	}
}

// TestOpencodesServersStayWhereTheyAre: a file with an object of objects under mcp.servers,
// as the second version of opencode has, gets the entry there in the form of that version.
// Any other file gets it under mcp.
func TestOpencodesServersStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	first := `"doorward": {"type": "local", "command": ["` + program + `", "connect"], "enabled": true}`
	second := `"doorward": {"type": "local", "command": ["` + program + `", "connect"]}`
	for before, want := range map[string]string{
		`{"mcp": {"servers": {"a": {"type": "local", "command": ["x"], "disabled": true}}}}`: `{"mcp": {"servers": {"a": {"type": "local", "command": ["x"], "disabled": true}, ` + second + `}}}`,
		`{"mcp": {"timeout": {"startup": 1}, "servers": {}}}`:                                `{"mcp": {"timeout": {"startup": 1}, "servers": {` + second + `}}}`,
		`{"mcp": {"servers": {"type": "local", "command": ["x"]}}}`:                          `{"mcp": {"servers": {"type": "local", "command": ["x"]}, ` + first + `}}`,
		`{"mcp": {"servers": {"a": {}}, "doorward": {"type": "local", "command": ["x"]}}}`:   `{"mcp": {"servers": {"a": {}}, ` + first + `}}`,
	} {
		c, path := onboard.Find("opencode"), filepath.Join(t.TempDir(), "opencode.json")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		after := install(t, c, path)
		if diff := cmp.Diff(parsed(t, c.Format, []byte(want)), parsed(t, c.Format, after)); diff != "" {
			t.Errorf("%s: %s", before, diff)
		}
		if words, err := c.Installed(after); err != nil || !cmp.Equal(words, []string{program, "connect"}) {
			t.Errorf("%s: installed %v %v", before, words, err)
		}
		uninstall(t, c, path)
		if words, err := c.Installed(content(t, path)); err != nil || words != nil {
			t.Errorf("%s: still there: %v %v", before, words, err)
		}
		if text := string(content(t, path)); text != before && !strings.Contains(before, "doorward") {
			t.Errorf("%s became %s", before, text)
		}
	}
}
