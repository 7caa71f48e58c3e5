package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// ForgetTyped drops the unread input of a terminal.
func ForgetTyped(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }

// Typed reports whether a terminal or pipe has input to read, or is at its end. It waits for it, but not longer than
// wait.
func Typed(fd int, wait time.Duration) (bool, error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}
