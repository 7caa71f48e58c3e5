package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnsuitablePlacesForADatabaseAreRefused(t *testing.T) {
	t.Parallel()
	answer := func(fs filesystem, err error) Options {
		return Options{filesystem: func(string) (filesystem, error) { return fs, err }}
	}
	for _, c := range []struct {
		name  string
		o     Options
		spoil func(dir string) error
		want  string
	}{
		{"NFS", answer(filesystem{name: "NFS"}, nil), nil, "store.postgres"},
		{"a file system of a program", answer(filesystem{name: "FUSE"}, nil), nil, "FUSE"},
		{"one that cannot be asked", answer(filesystem{}, errOdd), nil, "odd"},
		{"the group may write", Options{}, func(dir string) error { return os.Chmod(dir, 0o720) }, "written by others"},
		{"all may write", Options{}, func(dir string) error { return os.Chmod(dir, 0o1777) }, "written by others"},
		{"the database is a link", Options{}, func(dir string) error {
			return os.Symlink("/dev/null", filepath.Join(dir, fileName))
		}, fileName},
		{"the log is a link", Options{}, func(dir string) error {
			return os.Symlink(filepath.Join(dir, "x"), filepath.Join(dir, fileName+"-wal"))
		}, fileName},
		{"the lock is a link", Options{}, func(dir string) error {
			return os.Symlink(filepath.Join(dir, "x"), filepath.Join(dir, fileName+".lock"))
		}, "lock"},
		{"it is a directory", Options{}, func(dir string) error { return os.Mkdir(filepath.Join(dir, fileName), 0o700) }, fileName},
		{"it is no database", Options{}, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, fileName), []byte(strings.Repeat("no database ", 500)), 0o600)
		}, "not a database"},
	} {
		p := place{dir: filepath.Join(t.TempDir(), "private")}
		must(t, os.Mkdir(p.dir, 0o700))
		if c.spoil != nil {
			must(t, c.spoil(p.dir))
		}
		db, err := Open(t.Context(), p.options(c.o))
		if err == nil {
			must(t, db.Close())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAnyFilesystemIsTakenWhenToldTo(t *testing.T) {
	t.Parallel()
	place{dir: t.TempDir()}.open(t, Options{AnyFilesystem: true,
		filesystem: func(string) (filesystem, error) { return filesystem{name: "FUSE"}, errOdd }})
}

func TestTheFileSystemOfThisHostIsKnown(t *testing.T) {
	t.Parallel()
	fs, err := filesystemOf(t.TempDir())
	if err != nil || fs.name == "" {
		t.Errorf("%+v, %v", fs, err)
	}
	if _, err := filesystemOf("/nowhere/at/all"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

// All files of the store have mode 0600, while it is open and afterwards, also a
// database file that was there with mode 0644. Close leaves no file open.
func TestTheFilesAreForTheirOwnerAlone(t *testing.T) {
	t.Parallel()
	p := place{dir: filepath.Join(t.TempDir(), "a", "b")}
	must(t, os.MkdirAll(p.dir, 0o755))
	must(t, os.WriteFile(filepath.Join(p.dir, fileName), nil, 0o644))
	look := func(when string, want ...string) {
		entries, err := os.ReadDir(p.dir)
		must(t, err)
		var got []string
		for _, e := range entries {
			fi, err := e.Info()
			must(t, err)
			if fi.Mode().Perm() != 0o600 {
				t.Errorf("%s, %s has mode %04o", when, e.Name(), fi.Mode().Perm())
			}
			got = append(got, e.Name())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s there are %v", when, got)
		}
	}
	db := p.open(t, Options{})
	must(t, db.Write(t.Context(), put("k", 1)))
	number(t, db, `SELECT count(*) FROM kv`)
	look("while open", "doorward.db", "doorward.db-shm", "doorward.db-wal", "doorward.db.lock")
	must(t, db.Close())
	look("afterwards", "doorward.db", "doorward.db.lock")
	if left := descriptors(t, p.dir); len(left) > 0 {
		t.Errorf("still open: %v", left)
	}
}

// descriptors lists the files under dir that this process has open.
func descriptors(t *testing.T, dir string) (open []string) {
	fds, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir+"/") {
			open = append(open, to)
		}
	}
	return open
}
