package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// ForgetTyped drops what was typed at a terminal and not read.
func ForgetTyped(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }

// Typed reports whether there is something to read at a terminal or pipe, or its end. It
// waits for that time at most.
func Typed(fd int, wait time.Duration) (bool, error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}
