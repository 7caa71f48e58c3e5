package audit

// Syncing. Invariant: without an error, data and length are on the disk.

import (
	"os"
	"syscall"
)

// datasync brings the file's data and length to the disk, without its times.
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
