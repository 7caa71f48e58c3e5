package process

import (
	"time"

	"golang.org/x/sys/windows"
)

// ForgetTyped drops the unread input of a console.
func ForgetTyped(fd int) error { return windows.FlushConsoleInputBuffer(windows.Handle(fd)) }

// Typed reports whether a console has input to read, or is at its end. It waits for it, but not longer than wait. For
// a pipe it returns true at once.
func Typed(fd int, wait time.Duration) (bool, error) {
	e, err := windows.WaitForSingleObject(windows.Handle(fd), uint32(wait.Milliseconds()))
	return e == windows.WAIT_OBJECT_0, err
}
