package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNotPrivate is wrapped by the errors of ReadSecret for a file whose content another
// user may know or have written.
var ErrNotPrivate = errors.New("it cannot be trusted")

// ReadSecret reads the file name of dir, which must be a regular file of this
// process's user with mode 0600, one name and at most limit bytes. Any other file is
// ErrNotPrivate and is not changed: correcting the mode would hide that the secret may
// be known. Links are not followed, and opening a pipe does not block.
func ReadSecret(dir *os.Root, name string, limit int64) ([]byte, error) {
	b, err := readSecret(dir, name, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir.Name(), name), inner(err))
	}
	return b, nil
}

func readSecret(dir *os.Root, name string, limit int64) ([]byte, error) {
	seen, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := judgeSecret(seen, limit); err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	is, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(is, seen) { // a Root follows links that stay within it
		return nil, fmt.Errorf("%w: it was replaced while it was opened", ErrNotPrivate)
	}
	if err := judgeSecret(is, limit); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// inner drops the path of an error, since the caller adds it.
func inner(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func judgeSecret(fi fs.FileInfo, limit int64) error {
	switch {
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%w: it is not a regular file", ErrNotPrivate)
	case fi.Size() > limit:
		return fmt.Errorf("%w: it is too large", ErrNotPrivate)
	}
	return judgeOwner(fi)
}

// Secret reads the secret file at path. If the file does not exist, Secret creates it with
// the result of fresh. Processes that create it concurrently get the same content.
func Secret(path string, limit int64, fresh func() ([]byte, error)) ([]byte, error) {
	dir, err := OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := filepath.Base(path)
	b, err := ReadSecret(dir, name, limit)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	end, err := alone(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer end()
	b, err = ReadSecret(dir, name, limit)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if b, err = fresh(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := Replace(dir, name+".new", name, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
