package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSettingsOfNpmAreAFile: only a regular file has settings. A pipe in its place, which a server that may write
// there can make, does not stop the start of others.
func TestSettingsOfNpmAreAFile(t *testing.T) {
	t.Parallel()
	const settings = "registry=https://npm.example.com/\n"
	for name, c := range map[string]struct {
		place func(path string) error
		want  string
	}{
		"a file": {func(path string) error { return os.WriteFile(path, []byte(settings), 0o600) }, settings},
		"a long file": {func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("\n", 64<<10)+settings), 0o600)
		}, ""},
		"a pipe":      {func(path string) error { return unix.Mkfifo(path, 0o600) }, ""},
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, ""},
		"none":        {func(string) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "npmrc")
			must(0, c.place(path))
			read := make(chan string, 1)
			go func() { read <- string(publicSettings(path)) }()
			select {
			case got := <-read:
				if got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			case <-time.After(20 * time.Second):
				t.Error("it is still read")
			}
		})
	}
}
