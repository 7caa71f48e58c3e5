package desktop

import "syscall"

// detached gives a program a process group of its own, so that it outlives this console.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
