//go:build unix

package main

import (
	"errors"
	"syscall"
)

// isReadOnly reports whether a directory is on a file system that cannot be written to.
func isReadOnly(dir string) bool {
	const writable = 2
	return errors.Is(syscall.Access(dir, writable), syscall.EROFS)
}
