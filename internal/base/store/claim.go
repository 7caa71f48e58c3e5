//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
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
	if lock, err = flock(path + ".lock"); err != nil {
		return "", nil, err
	}
	if err := errors.Join(ownFiles(path), syncDir(dir)); err != nil {
		return "", nil, errors.Join(err, unlock(lock))
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

// flock takes the lock, which ends with the process at the latest. The file is never
// removed: otherwise two daemons could lock different files of the same name.
func flock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%w: %s", ErrLocked, path)
	default:
		err = fmt.Errorf("locking %s: %w", path, err)
	}
	f.Close()
	return nil, err
}

// unlock releases the lock. Closing the file would not suffice: a child process that is
// just being started shares it until its exec.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
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

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
