package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/base/durable"
)

// On a full disk the old file stays and no partial file is left. With room again
// the file is replaced.
func TestAFullDiskKeepsTheFileOfBefore(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mounting a small file system is not permitted here (%v)", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	root, err := os.OpenRoot(disk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	p := &place{Root: root, t: t, dir: disk, bait: filepath.Join(t.TempDir(), "bait")}
	p.must(os.WriteFile(p.bait, []byte("bait"), 0o644))
	p.must(durable.Replace(root, "draft", "name", []byte(old)))
	if err := os.WriteFile(p.path("ballast"), make([]byte, 1<<17), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("it is not full: %v", err)
	}
	for range 3 {
		if err := durable.Replace(root, "draft", "name", make([]byte, 1<<13)); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("on a full disk: %v", err)
		}
		if err := durable.Write(root, "new", make([]byte, 1<<13)); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	p.holds("name", old)
	p.only("ballast", "name")
	p.must(os.Remove(p.path("ballast")))
	p.must(durable.Replace(root, "draft", "name", []byte(fresh)))
	p.holds("name", fresh)
}
