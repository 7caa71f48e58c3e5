package attest

// Reading of /proc. Invariant: a file is read whole, up to mostProc bytes, or there is an error.

import (
	"slices"

	"golang.org/x/sys/unix"
)

// mostProc is the largest number of bytes that is read of a file.
const mostProc = 1 << 16

// ReadProc reads a small file of /proc by plain system calls. os.ReadFile also tries to register
// the file with the runtime's poller, which costs more than the read.
func ReadProc(path string) ([]byte, error) { return ReadIn(unix.AT_FDCWD, path) }

// ReadIn is ReadProc for a name below an open directory.
func ReadIn(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 2<<10)
	for len(b) < mostProc {
		b = slices.Grow(b, 512)
		n, err := unix.Read(fd, b[len(b):min(cap(b), mostProc)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return b, nil
		default:
			b = b[:len(b)+n]
		}
	}
	return b, nil
}
