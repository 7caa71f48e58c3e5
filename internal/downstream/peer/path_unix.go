//go:build linux || darwin

package peer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/base/durable"
)

// ErrInUse means that a process answers on the socket, or that the path is not a socket
// of this user.
var ErrInUse = errors.New("the path is in use")

// PrivateDir opens a directory that belongs to this user and that no other user may write
// to. It makes the directory (0700, parents too) when it is missing. A symbolic link in
// the last component is refused. The protection holds only while no other user can write
// to the parents.
func PrivateDir(path string) (*os.File, error) {
	path = filepath.Clean(path) // a trailing slash would follow a symlink
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the private directory: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "opening the private directory", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	if err := private(dir); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

func private(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, _, ok := Owner(fi); !ok || uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s belongs to uid %d, not to the current user", f.Name(), uid)
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %04o)", f.Name(), fi.Mode().Perm())
	}
	return nil
}

// Owner returns uid and gid of a file from the result of Stat or Lstat.
func Owner(fi fs.FileInfo) (uid, gid uint32, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return st.Uid, st.Gid, true
}

// Lock takes an exclusive lock on a file in dir. The file is made when it is missing and
// never removed: after a removal, two processes could lock different files of one name.
// The lock ends when the result is closed or the process ends. Lock retries until wait
// has passed, then returns a durable.ErrLocked.
func Lock(dir *os.File, name string, wait time.Duration) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	fd, err := unix.Openat(int(dir.Fd()), name, flags, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "opening the lock", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := lockable(f); err != nil {
		f.Close()
		return nil, err
	}
	if err := durable.LockFile(f, wait); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func lockable(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.Name())
	}
	return private(f)
}

// ClearSocket makes path free for a bind: it removes a socket of this user that no
// process listens on. The caller holds the lock that belongs to path. Anything else is
// left alone, and the error wraps ErrInUse.
func ClearSocket(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at the socket: %w", err)
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket (%s): %w", path, fi.Mode().Type(), ErrInUse)
	}
	if uid, _, ok := Owner(fi); !ok || uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s belongs to uid %d, not to the current user: %w", path, uid, ErrInUse)
	}
	if err := connectUnix(path); !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("a process answers on %s: %w", path, ErrInUse)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the stale socket: %w", err)
	}
	return nil
}

// connectUnix tries a stream connection and closes it. It never waits: with a full
// backlog it returns EAGAIN.
func connectUnix(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}
