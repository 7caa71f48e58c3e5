package credential

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// stage writes a valid session file, and beside it a bait: another valid private file, under
// a name that is not a session's.
func stage(t *testing.T) (dir, path, bait string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	f := File{Token: "dws1.good", SessionID: "0000000000000001", Expires: time.Now().Add(time.Hour).UTC()}
	path, err := Write(dir, f)
	if err != nil {
		t.Fatal(err)
	}
	f.Token = "dws1.evil"
	evil, err := encode(f)
	bait = filepath.Join(filepath.Dir(path), "bait")
	if err := errors.Join(err, os.WriteFile(bait, evil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir, path, bait
}

// A file that is replaced between the check of its name and its opening is not used. A pipe
// in its place does not block the reader.
func TestAFileThatIsExchangedIsNotBelieved(t *testing.T) {
	t.Parallel()
	for what, swap := range map[string]func(path, bait string) error{
		"a link":         func(path, bait string) error { return os.Symlink(filepath.Base(bait), path) },
		"a hard link":    func(path, bait string) error { return os.Link(bait, path) },
		"another file":   func(path, bait string) error { return os.Rename(bait, path) },
		"a pipe":         func(path, bait string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory":    func(path, bait string) error { return os.Mkdir(path, 0o700) },
		"nothing at all": func(path, bait string) error { return nil },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			run, path, bait := stage(t)
			dir, err := open(run)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			looked := false
			f, err := read(dir, filepath.Base(path), func(fi fs.FileInfo) error {
				if !looked {
					looked = true
					if err := errors.Join(os.Rename(path, path+".away"), swap(path, bait)); err != nil {
						t.Fatal(err)
					}
				}
				return judge(fi)
			})
			if err == nil || f != (File{}) || !looked {
				t.Errorf("believed %+v, %v", f, err)
			}
		})
	}
}

// Mode, number of links and size are checked on the opened file: a change between the check
// of the name and the opening is noticed.
func TestAFileIsJudgedAsItWasOpened(t *testing.T) {
	t.Parallel()
	for want, change := range map[error]func(path string) error{
		ErrMode:  func(path string) error { return os.Chmod(path, 0o644) },
		ErrLinks: func(path string) error { return os.Link(path, path+".second") },
		ErrSize:  func(path string) error { return os.Truncate(path, maxSize+1) },
	} {
		run, path, _ := stage(t)
		dir, err := open(run)
		if err != nil {
			t.Fatal(err)
		}
		looked := false
		f, err := read(dir, filepath.Base(path), func(fi fs.FileInfo) error {
			if !looked {
				looked = true
				if err := change(path); err != nil {
					t.Fatal(err)
				}
				return nil
			}
			return judge(fi)
		})
		if !errors.Is(err, want) || f != (File{}) {
			t.Errorf("got %+v, %v; want %v", f, err, want)
		}
		dir.Close()
	}
}

// A directory that is replaced by a link to another private directory, between its check and
// its opening, is refused.
func TestADirectoryThatIsExchangedIsRefused(t *testing.T) {
	t.Parallel()
	run, path, _ := stage(t)
	place := filepath.Dir(path)
	look := func(name string) (fs.FileInfo, error) {
		fi, err := os.Lstat(name)
		return fi, errors.Join(err, os.Rename(place, filepath.Join(run, "away")), os.Mkdir(filepath.Join(run, "other"), 0o700), os.Symlink("other", place))
	}
	if dir, err := enter(place, 0o077, look, os.OpenRoot, place); !errors.Is(err, ErrFolder) {
		t.Errorf("entered %v, %v", dir, err)
	}
}
