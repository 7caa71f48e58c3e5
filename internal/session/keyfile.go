package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/durable"
	"github.com/doorward/doorward/internal/peer"
)

// The keys are one file of the state directory, replaced whole by rename.
const (
	keyFile  = "session.keys"
	keyNew   = "session.keys.new"
	keyLock  = "session.keys.lock"
	lockWait = 5 * time.Second
	maxKeys  = 4 << 10 // bytes
)

// openKeys reads the keys of a state directory, makes them where there are
// none, and rotates those that are due. A file that is damaged, or that others
// could have read or written, stays as it is, for somebody to look at: mending
// its mode would hide that its keys may be known.
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

// rotate gives a running daemon its next key. Keys that were lost from the disk
// are written again; those there that are not ours stay theirs.
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

// withKeys lets change replace the keys, of which nil is none, while no other
// process does. What it gives is on disk when withKeys returns.
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
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("the session keys: %w", err)
	}
	defer root.Close()
	path := filepath.Join(dir, keyFile)
	before, err := readKeys(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the session keys %s: %w: remove the file to get new keys; every session then begins again", path, err)
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

// readKeys reads the file after judging it. A Root follows links that stay
// within it, so what was opened is compared with what stands under the name;
// and a pipe that was put there is not waited for.
func readKeys(root *os.Root) (*ring, error) {
	seen, err := root.Lstat(keyFile)
	if err != nil {
		return nil, err
	}
	if err := judge(seen); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(keyFile, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	is, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !os.SameFile(is, seen):
		return nil, errors.New("it was exchanged while it was opened")
	}
	if err := judge(is); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeys+1))
	if err != nil {
		return nil, err
	}
	r, err := parseRing(b)
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	return r, nil
}

func judge(fi fs.FileInfo) error {
	uid, _, known := peer.Owner(fi)
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case !known || !ok || uid != uint32(os.Geteuid()):
		return fmt.Errorf("it belongs to uid %d, not to us", uid)
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may have read or changed it (mode %04o, want 0600)", fi.Mode().Perm())
	case st.Nlink > 1:
		return errors.New("it has more than one name")
	case fi.Size() > maxKeys:
		return errors.New("it is too large")
	}
	return nil
}

// writeKeys replaces the file. The caller holds the lock.
func writeKeys(root *os.Root, r *ring) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	return durable.Replace(root, keyNew, keyFile, b)
}
