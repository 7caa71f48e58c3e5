package attest

// The socket before bind. Invariant: every accepted connection carries the credentials of
// the writer of each byte, including the bytes before the accept.

import (
	"cmp"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenControl prepares a Unix socket before bind and listen; it fits
// net.ListenConfig.Control.
//
// SO_PASSCRED is inherited by accepted sockets, so the kernel records the writer of every
// byte, also before the accept, and never merges two writers into one read. With
// SO_PASSRIGHTS (Linux 6.16) off, passing descriptors fails for the sender; older kernels
// do not have it. The mode of the unbound socket becomes the mode of the file, which
// therefore never has a wider one.
func ListenControl(network, address string, c syscall.RawConn) error {
	var err error
	outer := c.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
			return
		}
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
		err = unix.Fchmod(int(fd), 0o600)
	})
	return cmp.Or(outer, err)
}
