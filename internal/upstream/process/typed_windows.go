package process

import "golang.org/x/sys/windows"

// ForgetTyped drops what was typed at a terminal and not read.
func ForgetTyped(fd int) error { return windows.FlushConsoleInputBuffer(windows.Handle(fd)) }
