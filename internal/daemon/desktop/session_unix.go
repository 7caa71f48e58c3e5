//go:build unix

package desktop

import "syscall"

// detached gives a program a session of its own, so that it outlives this terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
