//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/doorward/doorward/internal/base/durable"
)

// claim makes this process the only user of the database in o.Dir. It fails for a
// second daemon, and for a directory that cannot hold a database. It creates the files of
// the database with mode 0600.
func claim(o Options) (path string, lock *os.File, err error) {
	path, err = dbPath(o.Dir)
	if err != nil {
		return "", nil, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	if err := checkDir(dir, o); err != nil {
		return "", nil, err
	}
	lock, err = durable.Lock(path+".lock", 0)
	if errors.Is(err, durable.ErrLocked) {
		err = fmt.Errorf("%w: %s.lock", ErrLocked, path)
	}
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(ownFiles(path), durable.SyncDir(dir)); err != nil {
		return "", nil, errors.Join(err, durable.Unlock(lock))
	}
	return path, lock, nil
}

// ownFiles creates the files of the database with mode 0600; SQLite would use the umask.
// SQLite removes the log of an empty database and creates a new one, which gets the mode
// of the database by the URI parameter `modeof`.
func ownFiles(path string) error {
	return errors.Join(ownFile(path), ownFile(path+"-wal"), ownFile(path+"-shm"))
}

func checkDir(dir string, o Options) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %04o)", dir, fi.Mode().Perm())
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, not to the current user", dir, st.Uid)
	}
	if o.AnyFilesystem {
		return nil
	}
	ask := o.filesystem
	if ask == nil {
		ask = filesystemOf
	}
	fs, err := ask(dir)
	if err != nil {
		return fmt.Errorf("asking for the file system of %s: %w", dir, err)
	}
	if !fs.local {
		return fmt.Errorf("%s is on a file system (%s) that cannot hold a database safely, since its locks and shared memory "+
			"are not those of this machine: put the state directory on a local disk, or use PostgreSQL (store.postgres)", dir, fs.name)
	}
	return nil
}

// ownFile makes path a plain file with mode 0600.
func ownFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if fi.Mode().Perm() != 0o600 {
		return f.Chmod(0o600)
	}
	return nil
}
