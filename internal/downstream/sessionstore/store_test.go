package sessionstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// files returns the names in a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

// An entry stays when its store is closed, until it is dropped or has not been used for the
// time Life. No other user can read it.
func TestAnEntryOutlivesItsStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s")
	if err := open(t, dir).Keep("a", []byte("one")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700 | fs.ModeDir, filepath.Join(dir, "a"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	s := open(t, dir)
	now := time.Now()
	s.now = func() time.Time { return now }
	found := func(want string) {
		t.Helper()
		got, err := s.Find("a")
		if string(got) != want || (want == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	found("one")
	now = now.Add(Life - time.Minute)
	s.Used("a")
	now = now.Add(Life - time.Minute)
	found("one")
	now = now.Add(2 * time.Minute)
	found("")
	if err := s.Sweep(); err != nil || len(files(t, dir)) != 0 {
		t.Errorf("%v, left: %v", err, files(t, dir))
	}
	if err := s.Keep("a", []byte("two")); err != nil || !s.Drop("a") || s.Drop("a") {
		t.Error("an entry is dropped once")
	}
	found("")
}

// An entry that is too large, a draft that a killed daemon left and a link are not found,
// and the next start removes them.
func TestOnlyWholeEntriesAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Keep("a", make([]byte, MaxEntry+1)); !errors.Is(err, ErrTooLarge) || len(files(t, dir)) != 0 {
		t.Errorf("%v, %v", err, files(t, dir))
	}
	old := time.Now().Add(-2 * time.Minute)
	for name, size := range map[string]int{draft + "half": 10, "long": MaxEntry + 1} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"long", "link", "../" + filepath.Base(dir), "."} {
		if got, err := s.Find(name); err == nil {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
	open(t, dir)
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Simultaneous writers of one entry leave the complete text of one of them.
func TestWritersOfOneEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if err := s.Keep("a", []byte(strings.Repeat(fmt.Sprintf("%x", i), 5000))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := s.Find("a")
	if err != nil || len(got) != 5000 || strings.Trim(string(got), string(got[:1])) != "" || len(files(t, dir)) != 1 {
		t.Errorf("%d bytes, %v, files %v", len(got), err, files(t, dir))
	}
}
