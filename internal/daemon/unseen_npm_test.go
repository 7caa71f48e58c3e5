package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// TestATokenOfNpmThatIsMissed shows that status names the grant of npm's settings where a
// registry refused a package and these settings have a token that the server does not see.
func TestATokenOfNpmThatIsMissed(t *testing.T) {
	const token = "//npm.example.com/:_authToken=npm_x\n"
	for _, tc := range []struct {
		settings, line string
		read           []string
		want           bool
	}{
		{token, "npm error code E401", nil, true},
		{token, "npm error code E403", nil, true},
		{token, "npm error code E404", nil, true},
		{token, "npm ERR! code E404", nil, true},
		{token, "npm error code ENEEDAUTH", nil, true},
		{token, "npm error code ETARGET", nil, false},
		{token, "see npm error code E404", nil, false},
		{token, "npm error code E404", []string{"npm"}, false},
		{"registry=https://npm.example.com/\n", "npm error code E404", nil, false},
		{"", "npm error code E401", nil, false},
	} {
		home := t.TempDir()
		t.Setenv("HOME", home)
		path := filepath.Join(home, ".npmrc")
		if err := os.WriteFile(path, []byte(tc.settings), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &config.Server{Kind: "stdio", Doorward: config.Handling{Sandbox: process.Contain, Read: tc.read}}
		u := new(unseen)
		u.note("s", tc.line)
		hints := u.of("s", s, sandboxOf(&config.Config{}, "home", s))
		if got := slices.Contains(hints, path+": read: [npm] grants it"); got != tc.want {
			t.Errorf("%q, %q, read %q: hints %q", tc.settings, tc.line, tc.read, hints)
		}
	}
}
