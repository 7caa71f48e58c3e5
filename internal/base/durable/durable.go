// Package durable writes files atomically, and reads files only in the directories in which
// they were found first (Pinned). Keys, tokens, sessions and documents must not be
// half-written after a crash, so all of them are written here. For packages that append to
// files it locks and syncs files, and tells what the errors of a write mean.
//
// Invariants: a written file appears under its name complete and synced, or not at all;
// until then the old file stays. Writing follows no links: a planted link is
// replaced or refused, and its target is not touched. No other user can open the
// file at any time. After an error no draft is left.
//
// Limits: the package does not check the directory, because callers differ in what they
// accept (peer.PrivateDir is the usual check). It does not keep two writers of the same
// draft apart, and it does not remove the draft of a killed writer under a name that is
// not used again. Each caller states how it handles these.
package durable

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OpenRoot is os.OpenRoot for a path at which another program may have put a pipe: opening it
// fails and does not wait for the pipe's other end.
func OpenRoot(path string) (*os.Root, error) {
	dir, err := os.OpenRoot(filepath.Clean(path) + string(filepath.Separator)) // what has a slash behind it is a directory
	return dir, named(err, path)
}

// named returns an error of the operating system with the path of the file, which it may name
// within a directory or not at all.
func named(err error, path string) error {
	if p, ok := err.(*fs.PathError); ok {
		return &fs.PathError{Op: p.Op, Path: path, Err: p.Err}
	}
	return err
}

// ReadFile is os.ReadFile for a regular file at a path at which another program may have put a pipe.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, cmp.Or(err, error(&fs.PathError{Op: "read", Path: path, Err: errNotRegular}))
	}
	return io.ReadAll(f)
}

var errNotRegular = errors.New("it is not a regular file")

// Replace replaces the content of the file name: it writes content to draft, and renames
// it. It first removes a draft that a killed writer has left, so callers that use the
// same draft must exclude each other by a lock.
func Replace(dir *os.Root, draft, name string, content []byte) error {
	if err := Forget(dir, draft); err != nil {
		return err
	}
	if err := Write(dir, draft, content); err != nil {
		return err
	}
	if err := dir.Rename(draft, name); err != nil {
		return errors.Join(err, Forget(dir, draft))
	}
	return Sync(dir)
}

// ReplaceAt is Replace for callers without a lock: every draft has a random name. The
// draft of a killed writer is not removed.
func ReplaceAt(path string, content []byte) error {
	dir, err := OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return Replace(dir, Draft+rand.Text(), filepath.Base(path), content)
}

// ReplaceLocked is Replace for a path whose writers exclude each other by a lock. The draft
// is path with ".new" behind it.
func ReplaceLocked(path string, content []byte) error {
	dir, err := OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(path)
	return Replace(dir, name+".new", name, content)
}

// Draft is the prefix of the names of drafts that are used once.
const Draft = ".new-"

// Write creates a new file and syncs its content, but not its name (see Sync). A name that
// exists, even as a dangling link, is left as it is, and the error is fs.ErrExist.
func Write(dir *os.Root, name string, content []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, Forget(dir, name))
	}
	return nil
}

// Sync makes the names in a directory durable.
func Sync(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Forget removes a name, but not the target of a link. A name that does not exist is no error.
func Forget(dir *os.Root, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
