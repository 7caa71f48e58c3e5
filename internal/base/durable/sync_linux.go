package durable

import (
	"os"
	"syscall"
)

// SyncData syncs the file's data and length to the disk, but not its times.
func SyncData(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
