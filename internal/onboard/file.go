package onboard

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

// maxFile is the largest size of a configuration file in bytes.
const maxFile = 64 << 20

// A File is a file with its content when it was read.
type File struct {
	Path string // as given
	Text []byte // nil: there is no such file
	real string // after following links
	mode fs.FileMode
}

// Read reads the file at path, which need not exist. Links are followed. The errors are
// ErrKind, ErrLink, ErrTooLarge and those of the system.
func Read(path string) (File, error) {
	f := File{Path: path, real: path, mode: 0o600}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return f, nil
	} else if err != nil {
		return f, err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("%s: %w", path, ErrLink)
	} else if err != nil {
		return f, err
	}
	f.real = real
	return f, f.load()
}

func (f *File) load() error {
	fi, err := os.Stat(f.real)
	switch {
	case err != nil:
		return err
	case !fi.Mode().IsRegular(): // reading a pipe would not end
		return fmt.Errorf("%s: %w", f.Path, ErrKind)
	case fi.Size() > maxFile:
		return fmt.Errorf("%s: %w", f.Path, ErrTooLarge)
	}
	in, err := os.Open(f.real)
	if err != nil {
		return err
	}
	defer in.Close()
	if f.Text, err = io.ReadAll(in); err != nil {
		return err
	}
	if f.Text == nil {
		f.Text = []byte{}
	}
	f.mode = fi.Mode().Perm()
	return nil
}

// Writable returns ErrReadOnly if the file's mode forbids writing.
func (f File) Writable() error {
	if f.Text != nil && f.mode&0o200 == 0 {
		return fmt.Errorf("%s: %w", f.Path, ErrReadOnly)
	}
	return nil
}

// Unchanged returns ErrChanged if the file differs from what was read.
func (f File) Unchanged() error {
	now, err := Read(f.Path)
	if err != nil {
		return err
	}
	if now.real != f.real || (now.Text == nil) != (f.Text == nil) || !bytes.Equal(now.Text, f.Text) {
		return fmt.Errorf("%s: %w", f.Path, ErrChanged)
	}
	return nil
}

// Replace replaces the file by text and keeps its mode; nil removes it. The file must be
// unchanged since it was read. A new file gets mode 0600, and missing directories 0700.
func (f File) Replace(text []byte) error {
	if err := errors.Join(f.Unchanged(), f.Writable()); err != nil {
		return err
	}
	if text == nil {
		return os.Remove(f.real)
	}
	if err := os.MkdirAll(filepath.Dir(f.real), 0o700); err != nil {
		return err
	}
	dir, err := os.OpenRoot(filepath.Dir(f.real))
	if err != nil {
		return err
	}
	defer dir.Close()
	draft, name := durable.Draft+rand.Text(), filepath.Base(f.real)
	if err := write(dir, draft, text, f.mode); err != nil {
		return fmt.Errorf("writing %s: %w", f.Path, err)
	}
	if err := dir.Rename(draft, name); err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", f.Path, err), durable.Forget(dir, draft))
	}
	return durable.Sync(dir)
}

// write makes a new file with a mode.
func write(dir *os.Root, name string, text []byte, mode fs.FileMode) error {
	if err := durable.Write(dir, name, text); err != nil {
		return err
	}
	if err := dir.Chmod(name, mode); err != nil {
		return errors.Join(err, durable.Forget(dir, name))
	}
	return nil
}

// backupMark separates the name of a file from the time of its backup.
const backupMark = ".doorward-backup-"

// Backup writes the content that was read to a new file beside it, and returns its path;
// empty: there is no file.
func (f File) Backup(now time.Time) (string, error) {
	if f.Text == nil {
		return "", nil
	}
	dir, err := os.OpenRoot(filepath.Dir(f.real))
	if err != nil {
		return "", err
	}
	defer dir.Close()
	name := filepath.Base(f.real) + backupMark + now.UTC().Format("20060102T150405.000Z")
	err = write(dir, name, f.Text, f.mode)
	for n := 2; errors.Is(err, fs.ErrExist) && n < 100; n++ { // the name of another backup of the same millisecond
		name = fmt.Sprintf("%s-%d", strings.TrimSuffix(name, fmt.Sprintf("-%d", n-1)), n)
		err = write(dir, name, f.Text, f.mode)
	}
	if err != nil {
		return "", fmt.Errorf("backing up %s: %w", f.Path, err)
	}
	return filepath.Join(filepath.Dir(f.real), name), nil
}

// backups returns the backups of the file, the newest first.
func (f File) backups() []File {
	paths, err := filepath.Glob(globbed(f.real) + backupMark + "*")
	if err != nil {
		return nil
	}
	var out []File
	for i := len(paths) - 1; i >= 0; i-- {
		if b, err := Read(paths[i]); err == nil && b.Text != nil {
			out = append(out, b)
		}
	}
	return out
}

// globbed returns the pattern of filepath.Glob that matches only path.
func globbed(path string) string {
	var b bytes.Buffer
	for _, r := range path {
		if bytes.ContainsRune([]byte(`*?[\`), r) && filepath.Separator == '/' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// removeCopy removes a backup that was restored.
func removeCopy(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the copy that is back in place: %w", err)
	}
	return nil
}
