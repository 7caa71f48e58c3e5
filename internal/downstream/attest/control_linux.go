package attest

// The socket before bind. Invariant: every connection that it accepts carries the
// credentials of the writer of each byte, those before the accept included.

import (
	"cmp"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenControl prepares a Unix socket before bind and listen; it fits
// net.ListenConfig.Control.
//
// SO_PASSCRED is inherited by accepted sockets, so that the kernel notes the
// writer of every byte, those before the accept included, and never merges two
// writers into one read. SO_PASSRIGHTS (Linux 6.16) off makes a sender that
// passes descriptors fail; older kernels do not know it. The mode of the
// unbound socket becomes that of the file, which therefore never existed with
// a wider one.
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
