package credential_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/downstream/credential"
)

// A failed write to a full file system, without free bytes or without free inodes, leaves no
// file behind. With space again the write succeeds.
func TestAFullDiskLeavesNothing(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		options string
		fill    func(dir string) error
	}{
		"no bytes": {"size=64k", func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
				return fmt.Errorf("the file system is not full: %w", err)
			}
			return nil
		}},
		"no files": {"nr_inodes=4", func(dir string) error { return os.WriteFile(filepath.Join(dir, "ballast"), nil, 0o600) }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			mnt := t.TempDir()
			if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, tc.options+",mode=0700"); err != nil {
				t.Skipf("mounting a small file system is not permitted here (%v)", err)
			}
			t.Cleanup(func() { must(t, syscall.Unmount(mnt, syscall.MNT_DETACH)) })
			first := write(t, mnt, session(1))
			must(t, tc.fill(mnt))
			for range 3 {
				path, err := credential.Write(mnt, session(2))
				if !errors.Is(err, syscall.ENOSPC) || path != "" {
					t.Fatalf("on a full disk: %s, %v", path, err)
				}
			}
			if all := names(t, filepath.Dir(first)); len(all) != 1 || all[0] != filepath.Base(first) {
				t.Errorf("left behind: %v", all)
			}
			must(t, os.Remove(filepath.Join(mnt, "ballast")))
			write(t, mnt, session(2))
		})
	}
}
