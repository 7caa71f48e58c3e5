//go:build unix

package durable_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/base/durable"
)

// Secret refuses a path that is not a small regular file of mode 0600, of this
// user and with one name, and leaves it unchanged.
func TestASecretThatOthersMayKnowIsRefused(t *testing.T) {
	t.Parallel()
	type spoil func(t *testing.T, path string) error
	chmod := func(mode os.FileMode) spoil {
		return func(_ *testing.T, path string) error { return os.Chmod(path, mode) }
	}
	away := func(t *testing.T, path string) string {
		t.Helper()
		other := filepath.Join(filepath.Dir(path), "other")
		if err := os.Rename(path, other); err != nil {
			t.Fatal(err)
		}
		return other
	}
	spoils := map[string]spoil{
		"a link to nowhere": func(t *testing.T, path string) error { away(t, path); return os.Symlink("nowhere", path) },
		"a link":            func(t *testing.T, path string) error { away(t, path); return os.Symlink("other", path) },
		"an absolute link":  func(t *testing.T, path string) error { return os.Symlink(away(t, path), path) },
		"a second name":     func(_ *testing.T, path string) error { return os.Link(path, path+".2") },
		"a pipe":            func(t *testing.T, path string) error { away(t, path); return syscall.Mkfifo(path, 0o600) },
		"a directory":       func(t *testing.T, path string) error { away(t, path); return os.Mkdir(path, 0o600) },
		"too large":         func(_ *testing.T, path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 65), 0o600) },
	}
	for mode := os.FileMode(0); mode <= 0o777; mode++ {
		if mode != 0o600 {
			spoils["mode "+mode.String()] = chmod(mode)
		}
	}
	for name, mode := range map[string]os.FileMode{"set-uid": os.ModeSetuid, "set-gid": os.ModeSetgid, "sticky": os.ModeSticky} {
		spoils[name] = chmod(0o600 | mode)
	}
	if os.Geteuid() == 0 {
		spoils["another user's"] = func(_ *testing.T, path string) error { return os.Chown(path, 12345, -1) }
	}
	for name, spoil := range spoils {
		path := filepath.Join(t.TempDir(), "x.key")
		if err := errors.Join(os.WriteFile(path, []byte("canary"), 0o600), os.Chmod(path, 0o600), spoil(t, path)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := durable.Secret(path, 64, func() ([]byte, error) { return []byte("fresh"), nil })
		if !errors.Is(err, durable.ErrNotPrivate) || b != nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
			t.Errorf("%s: it was changed: %v, %v", name, after, err)
		}
	}
}

func TestASecretIsMadeOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.key")
	var got [8][]byte
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			b, err := durable.Secret(path, 64, func() ([]byte, error) { return []byte{byte(i)}, nil })
			if err != nil {
				t.Error(err)
			}
			got[i] = b
		})
	}
	wg.Wait()
	for i := range got {
		if !bytes.Equal(got[i], got[0]) {
			t.Errorf("two secrets: %v and %v", got[i], got[0])
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	broken := errors.New("no entropy")
	none := filepath.Join(t.TempDir(), "y.key")
	if _, err := durable.Secret(none, 64, func() ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
