package process

import (
	"time"

	"golang.org/x/sys/windows"
)

// ForgetTyped drops what was typed at a terminal and not read.
func ForgetTyped(fd int) error { return windows.FlushConsoleInputBuffer(windows.Handle(fd)) }

// Typed reports whether there is something to read at a console, or its end. It waits for
// that time at most. Of a pipe it says so at once.
func Typed(fd int, wait time.Duration) (bool, error) {
	e, err := windows.WaitForSingleObject(windows.Handle(fd), uint32(wait.Milliseconds()))
	return e == windows.WAIT_OBJECT_0, err
}
