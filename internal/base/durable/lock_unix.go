//go:build unix

package durable

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// NoFollow makes opening a file fail if its name is a symbolic link, and not wait if it is a pipe.
const NoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Lock locks the file at path, which it creates if it does not exist, for this process
// alone. The lock ends with Unlock, or with the process. While another process has the lock,
// Lock tries again until wait has passed. The error then wraps ErrLocked. The file must
// never be removed: otherwise two processes could lock different files of the same name.
func Lock(path string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|NoFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := LockFile(f, wait); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// LockFile is Lock for an open file, which it leaves open.
func LockFile(f *os.File, wait time.Duration) error {
	for end := time.Now().Add(wait); ; time.Sleep(lockPause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EWOULDBLOCK) && !time.Now().After(end) {
			continue
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
}

// Unlock releases the lock of f, and closes f. Closing alone would not suffice: a child
// process that is just being started shares the lock until its exec.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// NoSpace reports whether err means that there is no space for more data, so that a later
// attempt may succeed.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || FileFull(err)
}

// FileFull reports whether err means that this one file may not grow, so that a new file
// helps.
func FileFull(err error) bool { return errors.Is(err, syscall.EFBIG) }

// SyncDir makes the names in the directory dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
