//go:build unix

package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// detached gives a program a session of its own, so that it outlives this one's terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func mayExecute(path string) bool { return unix.Access(path, unix.X_OK) == nil }
