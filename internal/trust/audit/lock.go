//go:build unix

package audit

// The lock. Invariant: one process at most writes to a log.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// LockName is the file whose flock makes one process the writer. Only a writer
// holds it; a reader takes it for an instant to learn whether there is a writer.
const LockName = "lock"

// NoFollow makes opening a file fail if its name is a symbolic link.
const NoFollow = syscall.O_NOFOLLOW

// lock makes this process the writer of dir until unlock. It retries for about 100 ms,
// because a reader takes the lock for an instant and must not count as a second writer.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	for try := 0; ; try++ {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || try == 20 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", dir, ErrLocked)
	}
	return nil, fmt.Errorf("locking %s: %w", dir, err)
}

// unlock releases the lock. Closing the file would not suffice: a child process
// that is just being started shares it until its exec.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// isSpace reports whether err means that there is no space, so that a later attempt may succeed.
func isSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// isFileLimit reports whether err means that this one file may not grow, so that a
// new segment helps.
func isFileLimit(err error) bool { return errors.Is(err, syscall.EFBIG) }

// syncDir makes the creation of files in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
