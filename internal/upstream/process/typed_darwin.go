package process

import "golang.org/x/sys/unix"

// fRead is FREAD of the system's headers: what was typed, and not what is to be shown.
const fRead = 1

// ForgetTyped drops what was typed at a terminal and not read.
func ForgetTyped(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, fRead) }
