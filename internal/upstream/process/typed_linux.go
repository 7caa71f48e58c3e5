package process

import "golang.org/x/sys/unix"

// ForgetTyped drops what was typed at a terminal and not read.
func ForgetTyped(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
