package audit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openIn lists the open files of this process below dir.
func openIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if path, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(path, dir+"/") {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

// TestNoFileStaysOpen: after Close, after a rotation, and when a damaged log was not opened.
func TestNoFileStaysOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, dir, Options{})
	l.Turn()
	if _, err := l.Append(act()); err != nil {
		t.Fatal(err)
	}
	if got := openIn(t, dir); len(got) != 2 {
		t.Errorf("%q are open, want the lock and one segment", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := openIn(t, dir); got != nil {
		t.Errorf("%q are open after Close", got)
	}
	path := SegmentPath(dir, 2)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-10] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	if got := openIn(t, dir); got != nil {
		t.Errorf("%q are open after an Open that failed", got)
	}
}
