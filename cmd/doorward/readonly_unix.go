//go:build unix

package main

import (
	"errors"
	"syscall"
)

// isReadOnly reports whether a directory is on a read-only file system.
func isReadOnly(dir string) bool {
	const writable = 2
	return errors.Is(syscall.Access(dir, writable), syscall.EROFS)
}
