package sessionstore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A write that fails on a full disk keeps the previous entry and leaves no other file. The
// entry can still be dropped.
func TestAFullDiskKeepsTheEntryOfBefore(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mounting a small file system is not permitted here (%v)", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	s := open(t, disk)
	if err := s.Keep("a", []byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, 1<<17), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("it is not full: %v", err)
	}
	if err := s.Keep("a", make([]byte, 1<<13)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	if got, err := s.Find("a"); string(got) != "before" || err != nil || len(files(t, disk)) != 2 {
		t.Errorf("%q %v, files %v", got, err, files(t, disk))
	}
	if !s.Drop("a") {
		t.Error("it cannot be dropped")
	}
}
