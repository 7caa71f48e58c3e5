// Package sessionstore keeps what a session needs to go on after a restart of the
// daemon. Several clients do not begin anew when their session id is answered with
// 404, so a restart would end their use of Doorward until they are restarted too.
//
// Invariant: an entry is found only under the whole name that it was kept under, and
// the name is the caller's digest. The directory therefore holds no session id.
//
// Limit: entries are not synced to the disk. They outlive the daemon, also one that is
// killed, and may be lost when the machine loses its power.
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
	Life     = 24 * time.Hour // of an entry behind its last use
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

// Open opens the store in dir, which it makes when it is not there. Entries that are
// too old are removed.
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

// Close releases the directory. Entries stay.
func (s *Store) Close() error { return s.dir.Close() }

// draft begins the name of a file that is not complete.
const draft = ".new-"

// Keep makes content the entry of that name.
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

// Find returns the entry of that name. The error is fs.ErrNotExist when there is none,
// or none that is still good.
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

// Used says that an entry was used now. One that is not there is ignored.
func (s *Store) Used(name string) {
	now := s.now()
	_ = s.dir.Chtimes(name, now, now)
}

// Drop removes an entry, and reports whether there was one.
func (s *Store) Drop(name string) bool { return s.dir.Remove(name) == nil }

// sweepEvery is how often entries that are too old are looked for.
const sweepEvery = time.Hour

func (s *Store) sweepAtTimes() {
	if s.now().Unix()-s.swept.Load() >= int64(sweepEvery/time.Second) {
		_ = s.Sweep() // the next one tries again
	}
}

// Sweep removes the entries that are too old, and what a killed daemon left half-written.
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
		_ = s.dir.Remove(e.Name()) // what cannot be removed is not found either
	}
	return nil
}
