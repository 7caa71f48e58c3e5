//go:build linux || darwin

package peer

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

func TestAPrivateDirectoryIsMadeOrChecked(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	missing := filepath.Join(base, "a", "b")
	dir, err := PrivateDir(missing)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	if fi, err := os.Stat(missing); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("made with mode %v, %v", fi.Mode(), err)
	}

	open := filepath.Join(base, "open")
	os.Mkdir(open, 0o700)
	link := filepath.Join(base, "link")
	file := filepath.Join(base, "file")
	if err := errors.Join(os.Symlink(missing, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, link + "/", file, "/proc/1/x"} {
		if dir, err := PrivateDir(path); err == nil {
			dir.Close()
			t.Errorf("%s was accepted", path)
		}
	}
	for _, mode := range []fs.FileMode{0o770, 0o702, 0o777} {
		if err := os.Chmod(open, mode); err != nil {
			t.Fatal(err)
		}
		if dir, err := PrivateDir(open); err == nil {
			dir.Close()
			t.Errorf("a directory with mode %v was accepted", mode)
		}
	}
}

func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if dir, err := PrivateDir("/"); err == nil {
			dir.Close()
			t.Error("the root directory was accepted")
		}
		return
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if d, err := PrivateDir(dir); err == nil {
		d.Close()
		t.Error("a directory of uid 12345 was accepted")
	}
}

func TestALockHasOneHolder(t *testing.T) {
	t.Parallel()
	dir, err := PrivateDir(t.TempDir() + "/d")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	first, err := Lock(dir, "l", 0)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Lock(dir, "l", 20*time.Millisecond); !errors.Is(err, durable.ErrLocked) {
		t.Fatalf("second holder: %v, %v", second, err)
	}
	got := make(chan error)
	go func() {
		f, err := Lock(dir, "l", 10*time.Second)
		if err == nil {
			f.Close()
		}
		got <- err
	}()
	first.Close()
	if err := <-got; err != nil {
		t.Errorf("waiting for the lock: %v", err)
	}
}

func TestALockFileMustBeOurs(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/d"
	dir, err := PrivateDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := errors.Join(
		os.Symlink("/etc/passwd", path+"/link"),
		os.Mkdir(path+"/dir", 0o700),
		syscall.Mkfifo(path+"/pipe", 0o600),
		os.WriteFile(path+"/wide", nil, 0o600),
		os.Chmod(path+"/wide", 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "dir", "pipe", "wide"} {
		if f, err := Lock(dir, name, 0); err == nil {
			f.Close()
			t.Errorf("%s was taken as a lock", name)
		}
	}
}

func TestOnlyAStaleSocketOfOursIsRemoved(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }

	live, err := net.Listen("unix", at("live"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	stale, err := net.Listen("unix", at("stale"))
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	if err := errors.Join(
		os.WriteFile(at("file"), []byte("precious"), 0o600),
		os.Mkdir(at("dir"), 0o700),
		os.Symlink(at("stale"), at("link"))); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"live", "file", "dir", "link"} {
		if err := ClearSocket(at(name)); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: %v, want ErrInUse", name, err)
		}
		if _, err := os.Lstat(at(name)); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
	for _, name := range []string{"stale", "missing"} {
		if err := ClearSocket(at(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(at(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", name)
		}
	}
	if os.Geteuid() == 0 {
		other, err := net.Listen("unix", at("other"))
		if err != nil {
			t.Fatal(err)
		}
		other.(*net.UnixListener).SetUnlinkOnClose(false)
		other.Close()
		os.Chown(at("other"), 12345, 12345)
		if err := ClearSocket(at("other")); !errors.Is(err, ErrInUse) {
			t.Errorf("a socket of another user: %v, want ErrInUse", err)
		}
	}
}
