//go:build unix

package durable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

// A second Lock of one file waits for as long as it is told, and then fails.
func TestALockHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	synctest.Test(t, func(t *testing.T) {
		held, err := durable.Lock(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := durable.Lock(path, 100*time.Millisecond); !errors.Is(err, durable.ErrLocked) {
			t.Errorf("the second lock: %v", err)
		}
		if waited := time.Since(start); waited < 100*time.Millisecond || waited > 110*time.Millisecond {
			t.Errorf("it waited %v", waited)
		}
		time.AfterFunc(50*time.Millisecond, func() { durable.Unlock(held) })
		again, err := durable.Lock(path, 100*time.Millisecond)
		if err != nil {
			t.Fatalf("a lock that is released meanwhile: %v", err)
		}
		if err := durable.Unlock(again); err != nil {
			t.Error(err)
		}
	})
}

// Unlock releases a lock that a copy of the file shares, as that of a child before its exec.
func TestUnlockReleasesWhatACopyShares(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := durable.Lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := syscall.Dup(int(held.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(shared)
	if err := durable.Unlock(held); err != nil {
		t.Fatal(err)
	}
	again, err := durable.Lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestALockThatIsALinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.Symlink(target, filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if f, err := durable.Lock(filepath.Join(dir, "lock"), 0); err == nil {
		f.Close()
		t.Error("the link was followed")
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target exists: %v", err)
	}
}

func TestWhatErrorsOfAWriteMean(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno][2]bool{
		syscall.ENOSPC: {true, false}, syscall.EDQUOT: {true, false}, syscall.EFBIG: {true, true}, syscall.EIO: {}, syscall.EBADF: {},
	} {
		err := fmt.Errorf("writing: %w", &fs.PathError{Op: "write", Path: "x", Err: errno})
		if got := [2]bool{durable.NoSpace(err), durable.FileFull(err)}; got != want {
			t.Errorf("%v: no space %v, file full %v, want %v", errno, got[0], got[1], want)
		}
	}
}

// SyncData and SyncDir report that a file or a directory could not be synced.
func TestSyncingReportsFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(durable.SyncData(f), durable.SyncDir(dir)); err != nil {
		t.Error(err)
	}
	f.Close()
	if durable.SyncData(f) == nil {
		t.Error("a closed file was synced")
	}
	if durable.SyncDir(filepath.Join(dir, "none")) == nil {
		t.Error("a missing directory was synced")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if durable.SyncData(w) == nil {
		t.Error("a pipe was synced")
	}
}

// ReplaceLocked overwrites the draft of a killed writer, and a planted link in its place.
func TestReplaceLockedTakesOverADraft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, target := filepath.Join(dir, "begin"), filepath.Join(dir, "target")
	for _, plant := range []func() error{
		func() error { return os.WriteFile(path+".new", []byte("unfinished"), 0o600) },
		func() error { return os.Symlink(target, path+".new") },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		if err := durable.ReplaceLocked(path, []byte("whole")); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "whole" {
			t.Errorf("%q %v", b, err)
		}
	}
	for _, gone := range []string{path + ".new", target} {
		if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", gone, err)
		}
	}
}
