package session

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// On a full disk no keys are made, and existing keys stay.
func TestAFullDiskCostsNoKeys(t *testing.T) {
	t.Parallel()
	mnt := t.TempDir()
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=16k,mode=0700"); err != nil {
		t.Skipf("mounting a small file system is not permitted here (%v)", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(mnt, syscall.MNT_DETACH)) })
	ballast := filepath.Join(mnt, "ballast")
	fill := func() {
		if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("it is not full: %v", err)
		}
	}
	fill()
	now := time.Now()
	if r, err := openKeys(mnt, now); r != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("on a full disk: %v, %v", r, err)
	}
	must(t, os.Remove(ballast))
	r, err := openKeys(mnt, now)
	must(t, err)
	fill()
	if next, err := r.rotate(mnt, now.Add(keyLife)); next != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("on a full disk: %v, %v", next, err)
	}
	again, err := openKeys(mnt, now)
	must(t, err)
	same(t, "the key", again.newest().id, r.newest().id)
	if _, err := os.Lstat(filepath.Join(mnt, keyNew)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	must(t, os.Remove(ballast))
	next, err := r.rotate(mnt, now.Add(keyLife))
	must(t, err)
	same(t, "the one before", next.keys[1].id, r.newest().id)
}
