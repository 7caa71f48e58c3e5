package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

func pasted(command string, args ...string) *config.Server {
	s := &config.Server{Kind: "stdio", Command: command, Doorward: config.Handling{Sandbox: process.Contain}}
	for _, a := range args {
		s.Args = append(s.Args, secret.New(a))
	}
	return s
}

func hintsOf(s *config.Server) []string {
	return new(unseen).of("s", s, sandboxOf(&config.Config{}, "home", s))
}

// TestABrowserThatCannotBuildItsSandbox shows that status names the profile of browsers for each
// server that starts one with a sandbox of its own, and no other.
func TestABrowserThatCannotBuildItsSandbox(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, tc := range []struct {
		args   []string
		mode   string
		grants []string
		want   bool
	}{
		{[]string{"@playwright/mcp@latest"}, process.Contain, nil, true},
		{[]string{"-y", "chrome-devtools-mcp@latest"}, process.Contain, nil, true},
		{[]string{"-y", "@modelcontextprotocol/server-puppeteer"}, process.Contain, nil, true},
		{[]string{"@playwright/mcp@latest", "--no-sandbox"}, process.Contain, nil, false},
		{[]string{"chrome-devtools-mcp@latest", "--chromeArg=--no-sandbox"}, process.Contain, nil, false},
		{[]string{"@playwright/mcp@latest"}, process.Contain, []string{"browsers"}, false},
		{[]string{"@playwright/mcp@latest"}, process.Strict, nil, false},
		{[]string{"@playwright/mcp@latest"}, process.Off, nil, false},
		{[]string{"@modelcontextprotocol/server-memory"}, process.Contain, nil, false},
	} {
		s := pasted("npx", tc.args...)
		s.Doorward.Sandbox, s.Doorward.Read = tc.mode, tc.grants
		got := slices.ContainsFunc(hintsOf(s), func(hint string) bool { return strings.Contains(hint, "read: [browsers] grants") })
		if got != tc.want {
			t.Errorf("%q, %s, read %q: hint %v", tc.args, tc.mode, tc.grants, got)
		}
	}
}

// TestAFileThatAServerIsToMake shows that status names the grant of the directory in which a
// server is to make a file, unless the server has the directory, or one of its own in its place.
func TestAFileThatAServerIsToMake(t *testing.T) {
	home, data := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(data, "old.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hint := filepath.Join(data, "new.db") + ": it does not exist; write: [" + data + "] lets the server make it"
	for _, tc := range []struct {
		arg  string
		want []string
	}{
		{data + "/new.db", []string{hint}},
		{"--db=" + data + "/new.db", []string{hint}},
		{"sqlite:///" + data + "/new.db", []string{hint}},
		{data + "/old.db", nil},
		{data + "/none/new.db", nil},
		{data + "/server.mjs", []string{data + "/server.mjs: it does not exist"}},
		{data + "/none/server.py", []string{data + "/none/server.py: it does not exist"}},
		{home + "/new.db", nil},
		{"/tmp/doorward-none", nil},
		{"/usr/doorward-none", nil},
		{"/doorward-none", nil},
	} {
		if diff := cmp.Diff(tc.want, hintsOf(pasted("server", tc.arg))); diff != "" {
			t.Errorf("%s: %s", tc.arg, diff)
		}
	}
	s := pasted("server", data+"/new.db")
	s.Doorward.Write = []string{data}
	if hints := hintsOf(s); len(hints) > 0 {
		t.Errorf("granted, and status says %q", hints)
	}
}
