//go:build unix

package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// judgeOwner refuses a file that another user could have read or written.
func judgeOwner(fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%w: its owner cannot be determined on this system", ErrNotPrivate)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%w: it belongs to uid %d, not to the current user", ErrNotPrivate, st.Uid)
	case fi.Mode() != 0o600:
		return fmt.Errorf("%w: others may have read or changed it (mode %04o, want 0600)", ErrNotPrivate, fi.Mode().Perm())
	case st.Nlink > 1:
		return fmt.Errorf("%w: it has more than one hard link", ErrNotPrivate)
	}
	return nil
}

// judgeAncestor refuses a directory in which another user can replace entries. In a
// directory with the sticky bit only the owner of an entry can.
func judgeAncestor(fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("its owner cannot be determined on this system")
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d", st.Uid)
	case fi.Mode().Perm()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("every user can write it (mode %04o); run chmod o-w on it", fi.Mode().Perm())
	}
	return nil
}

// alone waits for an exclusive lock of dir, which holds among all processes. The lock ends
// with end, or with the process.
func alone(dir *os.Root) (end func(), err error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking the directory: %w", err)
	}
	return func() {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // a child just forked may share f, so that Close would not unlock
		f.Close()
	}, nil
}

// Removed reports whether no directory has the file of fi, which is open, any more.
func Removed(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}
