//go:build unix

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// file writes a configuration with exactly this mode, whatever the umask.
func file(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := file(t, "doorward.yaml", "policy: policy.cedar\n", 0o644)
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		c, ps := config.Load(p, options())
		if c == nil || len(ps) != 0 {
			t.Fatalf("%s: %v", p, ps)
		}
		if c.File != p || c.Dir != filepath.Dir(p) || c.Policy != filepath.Join(filepath.Dir(p), "policy.cedar") {
			t.Errorf("file %s, dir %s, policy %s", c.File, c.Dir, c.Policy)
		}
	}
}

// Load refuses a file that others can write, with which they could start programs, and one that is not a regular file.
func TestLoadRefusesTheFile(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(file(t, "x.yaml", "", 0o666), link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, want string }{
		"writable by all":           {file(t, "x.yaml", "", 0o646), "chmod go-w"},
		"writable by the group":     {file(t, "x.yaml", "", 0o664), "chmod go-w"},
		"a link to a writable file": {link, "chmod go-w"},
		"absent":                    {filepath.Join(t.TempDir(), "none.yaml"), "no such file"},
		"a directory":               {t.TempDir(), "not a regular file"},
		"a pipe":                    {pipe, "not a regular file"},
		"a device":                  {"/dev/zero", "not a regular file"},
	} {
		got, ps := config.Load(c.path, options())
		if got != nil || len(ps) != 1 || !strings.Contains(ps[0].Problem, c.want) || ps[0].File != c.path || ps[0].Server != "" {
			t.Errorf("%s: %v", name, ps)
		}
	}
}

// Load refuses a file of another user, although that user alone can write it. Only root can give a file away.
func TestLoadRefusesAnothersFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("giving a file away takes root")
	}
	path := file(t, "x.yaml", "", 0o600)
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	c, ps := config.Load(path, options())
	if c != nil || len(ps) != 1 || !strings.Contains(ps[0].Problem, "belongs to user 12345") {
		t.Errorf("problems: %v", ps)
	}
}

func TestLoadRefusesALargeFile(t *testing.T) {
	t.Parallel()
	for size, ok := range map[int]bool{1 << 20: true, 1<<20 + 1: false} {
		content := "#" + strings.Repeat("x", size-1)
		c, ps := config.Load(file(t, "x.yaml", content, 0o600), options())
		if (c != nil) != ok {
			t.Errorf("%d bytes: %v", size, ps)
		}
	}
}
