// Package durable writes files completely. Keys, tokens, sessions and documents
// must not be half-written after a crash, so all of them are written here.
//
// Invariants: a file appears under its name complete and synced, or not at all;
// until then the old file stays. A name is never followed: a planted link is
// replaced or refused, and its target is not touched. No other user can open the
// file at any time. On an error no draft is left.
//
// Limits: it does not judge the directory, because callers differ in what they
// accept (peer.PrivateDir is the usual check); it does not keep two writers of
// one draft apart; and it does not remove what a killed writer left under a name
// that is not used again. Each caller states how it does these.
package durable

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace makes content the file name: it is written to draft, and renamed.
// What a killed writer left under the name of the draft goes first, so callers
// take turns, by a lock.
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

// ReplaceAt is Replace for callers that take no turns: every draft has a name of
// its own, and what a killed writer leaves stays under it.
func ReplaceAt(path string, content []byte) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return Replace(dir, Draft+rand.Text(), filepath.Base(path), content)
}

// Draft begins the names of drafts that are used once.
const Draft = ".new-"

// Write makes a new file and syncs it, but not its name: a name that is taken,
// also by a link to nowhere, is fs.ErrExist, and stays as it is.
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

// Forget removes a name, and nothing that it may point to. There being none is
// no error.
func Forget(dir *os.Root, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
