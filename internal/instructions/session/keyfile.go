package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// The keys are one file of the state directory, which is replaced as a whole by a rename.
const (
	keyFile  = "session.keys"
	keyNew   = "session.keys.new"
	keyLock  = "session.keys.lock"
	lockWait = 5 * time.Second
	maxKeys  = 4 << 10 // bytes
)

// openKeys reads the keys of a state directory, creates them if there are none, and
// rotates them when they are due. A file that is damaged, or that others could have read
// or written, is left as it is for inspection: a repair of its mode would hide that its
// keys may be known.
func openKeys(dir string, now time.Time) (*ring, error) {
	return withKeys(dir, func(r *ring) *ring {
		switch {
		case r == nil:
			return &ring{[]key{newKey(now)}}
		case r.due(now):
			return r.next(now)
		}
		return r
	})
}

// rotate rotates the keys of a running daemon. Missing keys on disk are written again. If
// the keys on disk are newer, they are taken over instead.
func (r *ring) rotate(dir string, now time.Time) (*ring, error) {
	return withKeys(dir, func(disk *ring) *ring {
		switch {
		case disk == nil:
			disk = r
		case disk.newest().id != r.newest().id && !disk.due(now):
			return disk
		}
		return disk.next(now)
	})
}

// withKeys lets change replace the keys (nil: none yet), under a lock against other
// processes. The result is on disk when withKeys returns.
func withKeys(dir string, change func(*ring) *ring) (*ring, error) {
	folder, err := peer.PrivateDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the session keys: %w", err)
	}
	defer folder.Close()
	lock, err := peer.Lock(folder, keyLock, lockWait)
	if err != nil {
		return nil, fmt.Errorf("the session keys: %w", err)
	}
	defer lock.Close()
	root, err := durable.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("the session keys: %w", err)
	}
	defer root.Close()
	path := filepath.Join(dir, keyFile)
	before, err := readKeys(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the session keys %w: remove the file to get new keys; every session then begins again", err)
	}
	after := change(before)
	if after == before {
		return after, nil
	}
	if err := writeKeys(root, after); err != nil {
		return nil, fmt.Errorf("writing the session keys %s: %w", path, err)
	}
	return after, nil
}

// readKeys reads the key file.
func readKeys(root *os.Root) (*ring, error) {
	b, err := durable.ReadSecret(root, keyFile, maxKeys)
	if err != nil {
		return nil, err
	}
	r, err := parseRing(b)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(root.Name(), keyFile), err)
	}
	return r, nil
}

// writeKeys replaces the key file. The caller holds the lock.
func writeKeys(root *os.Root, r *ring) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	return durable.Replace(root, keyNew, keyFile, b)
}
