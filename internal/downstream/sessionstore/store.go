// Package sessionstore keeps MCP sessions over a restart of the daemon. Several clients
// do not open a new session when the id of theirs is answered with 404, so without the
// store they would have to be restarted together with the daemon.
//
// Invariant: an entry is found only under the exact name that it was stored with, and the
// name is a digest made by the caller. The directory therefore contains no session id.
//
// Limit: entries are not synced to the disk. They survive the end of the daemon, even if
// it is killed, and may be lost when the machine loses power.
package sessionstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// Bounds of the store.
const (
	Life     = 24 * time.Hour // of an entry after its last use
	MaxEntry = 64 << 10       // bytes
)

// ErrTooLarge means that an entry has more than MaxEntry bytes.
var ErrTooLarge = errors.New("too large to be kept")

// Store is a directory with one file for each entry. It is safe for concurrent use.
type Store struct {
	dir   *os.Root
	now   func() time.Time
	swept atomic.Int64 // Unix time in seconds
}

// Open opens the store in dir and makes the directory if it is missing. Expired entries
// are removed.
func Open(dir string) (*Store, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the directory of sessions: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of sessions: %w", err)
	}
	s := &Store{dir: root, now: time.Now}
	return s, s.Sweep()
}

// Close releases the directory. The entries remain.
func (s *Store) Close() error { return s.dir.Close() }

// draft is the prefix of the name of an incomplete file.
const draft = ".new-"

// Keep stores content as the entry of that name and replaces an earlier one.
func (s *Store) Keep(name string, content []byte) error {
	if len(content) > MaxEntry {
		return ErrTooLarge
	}
	s.sweepAtTimes()
	part := draft + rand.Text()
	err := s.dir.WriteFile(part, content, 0o600)
	if err == nil {
		err = s.dir.Rename(part, name)
	}
	if err != nil {
		_ = s.dir.Remove(part) // it may not be there
		return fmt.Errorf("keeping a session: %w", err)
	}
	return nil
}

// Find returns the entry of that name. The error is fs.ErrNotExist if there is none or it
// has expired.
func (s *Store) Find(name string) ([]byte, error) {
	f, err := s.dir.Open(filepath.Base(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !s.good(info) {
		return nil, fs.ErrNotExist
	}
	return io.ReadAll(io.LimitReader(f, MaxEntry))
}

func (s *Store) good(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() <= MaxEntry && s.now().Sub(info.ModTime()) < Life
}

// Used sets the last use of an entry to now. An unknown name is ignored.
func (s *Store) Used(name string) {
	now := s.now()
	_ = s.dir.Chtimes(name, now, now)
}

// Drop removes an entry and reports whether it existed.
func (s *Store) Drop(name string) bool { return s.dir.Remove(name) == nil }

// sweepEvery is the time between two sweeps.
const sweepEvery = time.Hour

func (s *Store) sweepAtTimes() {
	if s.now().Unix()-s.swept.Load() >= int64(sweepEvery/time.Second) {
		_ = s.Sweep() // the next Keep tries again
	}
}

// Sweep removes expired entries, and incomplete files that a killed daemon left.
func (s *Store) Sweep() error {
	now := s.now()
	s.swept.Store(now.Unix())
	d, err := s.dir.Open(".")
	if err != nil {
		return fmt.Errorf("reading the directory of sessions: %w", err)
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("reading the directory of sessions: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || s.good(info) && (!strings.HasPrefix(e.Name(), draft) || now.Sub(info.ModTime()) < time.Minute) {
			continue
		}
		_ = s.dir.Remove(e.Name()) // a failure only leaves an entry that Find ignores
	}
	return nil
}
