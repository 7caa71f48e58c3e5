//go:build linux || darwin

package peer

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAStampChangesWithTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chmod(path, mode)
	}
	look := func() Stamp {
		s, err := StampOf(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write("a", 0o600)
	first := look()
	if first != look() || !first.Regular || first.Perm != 0o600 || first.Size != 1 || first.UID != uint32(os.Geteuid()) {
		t.Errorf("stamp %+v", first)
	}
	write("ab", 0o600)
	if look() == first {
		t.Error("other content, same stamp")
	}
	second := look()
	write("ab", 0o640)
	if look() == second {
		t.Error("other mode, same stamp")
	}
	third := look()
	other := path + ".new"
	os.WriteFile(other, []byte("ab"), 0o640)
	os.Rename(other, path)
	if look() == third {
		t.Error("another file, same stamp")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := StampOfFile(f); err != nil || s != look() {
		t.Errorf("by descriptor %+v, %v; by path %+v", s, err, look())
	}
	if s := look(); s.Settled(time.Now()) || !s.Settled(time.Now().Add(3*time.Second)) {
		t.Error("a file is settled two seconds after its last change")
	}
	if _, err := StampOf(path + ".missing"); !os.IsNotExist(err) {
		t.Errorf("missing file: %v", err)
	}
}
