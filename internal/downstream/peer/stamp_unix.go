//go:build linux || darwin

package peer

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// StampOf returns the stamp of path, following symbolic links.
func StampOf(path string) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Stamp{}, &fs.PathError{Op: "looking at", Path: path, Err: err}
	}
	return newStamp(&st), nil
}

// StampOfFile returns the stamp of an open file.
func StampOfFile(f *os.File) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Stamp{}, &fs.PathError{Op: "looking at", Path: f.Name(), Err: err}
	}
	return newStamp(&st), nil
}

func newStamp(st *unix.Stat_t) Stamp {
	return Stamp{
		Regular: st.Mode&unix.S_IFMT == unix.S_IFREG,
		Perm:    fs.FileMode(st.Mode & 0o777),
		UID:     st.Uid,
		GID:     st.Gid,
		Size:    st.Size,
		dev:     uint64(st.Dev),
		ino:     st.Ino,
		mtime:   st.Mtim.Nano(),
		ctime:   st.Ctim.Nano(),
	}
}

// NoSuchAddress reports whether a bind failed because this machine does not have the
// address or the address family.
func NoSuchAddress(err error) bool {
	return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)
}
