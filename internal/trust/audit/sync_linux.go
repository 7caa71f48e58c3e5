package audit

// Syncing. Invariant: if there is no error, data and length are on the disk.

import (
	"os"
	"syscall"
)

// datasync syncs the file's data and length to the disk, but not its times.
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
