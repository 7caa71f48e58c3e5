package onboard_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/onboard"
)

// cursorFile makes a file of Cursor with one server.
func cursorFile(t *testing.T) (*onboard.Client, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"x": {"command": "y"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return onboard.Find("cursor"), path
}

func TestAFileThatChangedSinceItWasShownIsNotWritten(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"written":  func(path string) error { return os.WriteFile(path, []byte(`{"other": 1}`), 0o600) },
		"removed":  os.Remove,
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		c, path := cursorFile(t)
		_, untouched := cursorFile(t)
		var all []onboard.Change
		for _, p := range []string{untouched, path} {
			planned, err := onboard.Install(c, p, program, []string{"connect"})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, planned)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		backups, err := onboard.Write(all, now)
		if !errors.Is(err, onboard.ErrChanged) && !errors.Is(err, onboard.ErrKind) || backups != nil {
			t.Errorf("%s: %v %v", name, backups, err)
		}
		if text := string(content(t, untouched)); strings.Contains(text, "doorward") {
			t.Errorf("%s: the other file was written: %s", name, text)
		}
	}
}

func TestAFileThatAppearsAfterThePreviewIsNotWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mcp.json")
	change, err := onboard.Install(onboard.Find("cursor"), path, program, []string{"connect"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := onboard.Write([]onboard.Change{change}, now); !errors.Is(err, onboard.ErrChanged) {
		t.Errorf("got %v", err)
	}
}

func TestFilesThatCannotBeEditedAreRefused(t *testing.T) {
	t.Parallel()
	c := onboard.Find("cursor")
	for name, tc := range map[string]struct {
		make func(path string) error
		want error
	}{
		"a directory":       {func(path string) error { return os.Mkdir(path, 0o700) }, onboard.ErrKind},
		"a link to nowhere": {func(path string) error { return os.Symlink(path+"-gone", path) }, onboard.ErrLink},
		"read-only":         {func(path string) error { return os.WriteFile(path, []byte("{}"), 0o400) }, onboard.ErrReadOnly},
		"broken":            {func(path string) error { return os.WriteFile(path, []byte(`{"a": `), 0o600) }, onboard.ErrSyntax},
		"a list":            {func(path string) error { return os.WriteFile(path, []byte(`[]`), 0o600) }, onboard.ErrSyntax},
		"servers in a list": {func(path string) error { return os.WriteFile(path, []byte(`{"mcpServers": []}`), 0o600) }, onboard.ErrShape},
		"a key twice": {func(path string) error {
			return os.WriteFile(path, []byte(`{"mcpServers": {}, "mcpServers": {}}`), 0o600)
		}, onboard.ErrShape},
	} {
		path := filepath.Join(t.TempDir(), "mcp.json")
		if err := tc.make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := onboard.Install(c, path, program, []string{"connect"}); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
		if left := listing(t, filepath.Dir(path)); !cmp.Equal(left, []string{"mcp.json"}) {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestALinkStaysALinkAndItsTargetIsWritten(t *testing.T) {
	t.Parallel()
	c, target := cursorFile(t)
	before := content(t, target)
	link := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	install(t, c, link)
	if words, err := c.Installed(content(t, target)); err != nil || len(words) != 2 {
		t.Errorf("the target: %v %v", words, err)
	}
	uninstall(t, c, link)
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v %v", fi, err)
	}
	if diff := cmp.Diff(string(before), string(content(t, target))); diff != "" {
		t.Error(diff)
	}
}

func TestTheBackupHasTheBytesAndTheModeOfTheFile(t *testing.T) {
	t.Parallel()
	c, path := cursorFile(t)
	before := content(t, path)
	change, err := onboard.Install(c, path, program, []string{"connect"})
	if err != nil {
		t.Fatal(err)
	}
	backups, err := onboard.Write([]onboard.Change{change}, now)
	if err != nil || len(backups) != 1 || filepath.Base(backups[0]) != "mcp.json.doorward-backup-20260301T120000.000Z" {
		t.Fatalf("%v %v", backups, err)
	}
	if diff := cmp.Diff(string(before), string(content(t, backups[0]))); diff != "" {
		t.Error(diff)
	}
	if fi, err := os.Stat(backups[0]); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
}

// TestUninstallKeepsWhatWasAddedSince: a file that its client edited after the
// installation loses only the entry, and the backups stay.
func TestUninstallKeepsWhatWasAddedSince(t *testing.T) {
	t.Parallel()
	c, path := cursorFile(t)
	text := strings.Replace(string(install(t, c, path)), `"x":`, `"new": {"command": "z"}, "x":`, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	uninstall(t, c, path)
	want := `{"mcpServers": {"new": {"command": "z"}, "x": {"command": "y"}}}`
	if diff := cmp.Diff(want, string(content(t, path))); diff != "" {
		t.Error(diff)
	}
	if left := listing(t, filepath.Dir(path)); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
}

func TestAnotherCommandReplacesTheEntryAtItsPlace(t *testing.T) {
	t.Parallel()
	for _, c := range onboard.Clients() {
		before, err := c.Install(nil, "/old/doorward", []string{"connect"})
		if err != nil {
			t.Fatal(err)
		}
		after, err := c.Install(before, program, []string{"connect", "--state-dir", "/s"})
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		words, err := c.Installed(after)
		if diff := cmp.Diff([]string{program, "connect", "--state-dir", "/s"}, words); diff != "" || err != nil {
			t.Errorf("%s: %v %s", c.Name, err, diff)
		}
		if strings.Count(string(after), "doorward") > strings.Count(string(before), "doorward")+1 {
			t.Errorf("%s: the old entry is still there:\n%s", c.Name, after)
		}
	}
}

func TestEachSystemHasItsPlaces(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	for _, tc := range []struct{ system, client, set, want string }{
		{"linux", "claude-code", "", "/.claude.json"},
		{"linux", "claude-code", "CLAUDE_CONFIG_DIR", "/set/.claude.json"},
		{"linux", "claude-desktop", "", "/.config/Claude/claude_desktop_config.json"},
		{"linux", "claude-desktop", "XDG_CONFIG_HOME", "/set/Claude/claude_desktop_config.json"},
		{"darwin", "claude-desktop", "", "/Library/Application Support/Claude/claude_desktop_config.json"},
		{"windows", "claude-desktop", "APPDATA", "/set/Claude/claude_desktop_config.json"},
		{"darwin", "vscode", "", "/Library/Application Support/Code/User/mcp.json"},
		{"darwin", "zed", "", "/.config/zed/settings.json"},
		{"linux", "codex", "CODEX_HOME", "/set/config.toml"},
		{"linux", "goose", "", "/.config/goose/config.yaml"},
		{"windows", "goose", "", "/AppData/Roaming/Block/goose/config/config.yaml"},
		{"windows", "jetbrains", "LOCALAPPDATA", "/set/github-copilot/intellij/mcp.json"},
		{"linux", "roo", "", "/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"},
	} {
		lookup := func(name string) (string, bool) {
			if name == tc.set {
				return home + "/set", true
			}
			v, ok := env[name]
			return v, ok
		}
		got, err := onboard.Places{Env: lookup, OS: tc.system}.User(onboard.Find(tc.client))
		if err != nil || got != home+tc.want {
			t.Errorf("%s on %s with %q: %s, %v", tc.client, tc.system, tc.set, got, err)
		}
	}
	nowhere := func(string) (string, bool) { return "", false }
	if _, err := (onboard.Places{Env: nowhere, OS: "linux"}).User(onboard.Find("cursor")); !errors.Is(err, onboard.ErrNoHome) {
		t.Errorf("without a home: %v", err)
	}
}

// TestTheFileThatIsThereIsUsed: of two names that a client reads, the one that exists
// is edited.
func TestTheFileThatIsThereIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "opencode.jsonc"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := onboard.Places{Env: os.LookupEnv, OS: "linux", Dir: dir}
	if got, err := p.Project(onboard.Find("opencode")); err != nil || got != filepath.Join(dir, "opencode.jsonc") {
		t.Errorf("%s %v", got, err)
	}
}
