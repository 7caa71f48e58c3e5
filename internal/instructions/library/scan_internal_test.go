package library

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/overload"
)

const sample = "---\nname: a\nclass: voice\n---\ntext\n"

func scanned(t *testing.T) (dir string, root *os.Root, s *scanner) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	s = newScanner(dir)
	doortest.Until(t, time.Minute, "the file is at rest", func() bool { return !s.look().moving })
	if f := s.files["a.md"]; f == nil || f.doc == nil {
		t.Fatalf("%+v", f)
	}
	return dir, root, s
}

func TestAFileThatDidNotChangeIsNotReadAgain(t *testing.T) {
	t.Parallel()
	_, _, s := scanned(t)
	s.files["a.md"].content = nil // a read would fill it
	for range 3 {
		if v := s.look(); v.moving || v.err != nil {
			t.Fatalf("%+v", v)
		}
	}
	if s.files["a.md"].content != nil {
		t.Error("it was read")
	}
}

// A file that was replaced between the look at its name and its opening is not read
// as the first one, and does not block the look.
func TestAFileThatWasReplacedIsNotReadAsItself(t *testing.T) {
	t.Parallel()
	dir, root, s := scanned(t)
	path, st := filepath.Join(dir, "a.md"), s.files["a.md"].stamp
	if got, whole, err := content(root, "a.md", st); err != nil || !whole || string(got) != sample {
		t.Fatalf("as it was: %q, %v, %v", got, whole, err)
	}
	for name, put := range map[string]func() error{
		"a named pipe": func() error { return syscall.Mkfifo(path, 0o600) },
		"nothing":      func() error { return nil },
		"another file": func() error { return os.WriteFile(path, []byte(sample), 0o600) },
		"a link inside": func() error {
			if err := os.WriteFile(path+".2", []byte(sample), 0o600); err != nil {
				return err
			}
			return os.Symlink("a.md.2", path)
		},
		"a link outside":     func() error { return os.Symlink("/etc/passwd", path) },
		"a link to a device": func() error { return os.Symlink("/dev/zero", path) },
		"a device": func() error {
			if os.Geteuid() != 0 {
				return nil // only root can make one
			}
			return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|5) // as /dev/zero
		},
	} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if got, whole, _ := content(root, "a.md", st); whole {
			t.Errorf("%s was taken for the file: %q", name, got)
		}
		if took := time.Since(began); took > time.Second+overload.Late() {
			t.Errorf("%s: the look took %s", name, took)
		}
	}
}

func TestAFileThatIsShorterThanItWasIsNotWhole(t *testing.T) {
	t.Parallel()
	dir, root, s := scanned(t)
	st := s.files["a.md"].stamp
	if err := os.Truncate(filepath.Join(dir, "a.md"), 3); err != nil {
		t.Fatal(err)
	}
	if got, whole, err := content(root, "a.md", st); whole || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A file that has not changed for a second is read at the first look, so a start does
// not wait.
func TestAFileAtRestForASecondIsReadAtTheFirstLook(t *testing.T) {
	t.Parallel()
	dir, _, s := scanned(t)
	st := s.files["a.md"].stamp
	doortest.Until(t, time.Minute, "it rests for a second", func() bool { return st.quiet(time.Now()) })
	v := newScanner(dir).look()
	if v.moving || v.files["a.md"].doc == nil {
		t.Errorf("%+v", v)
	}
}
