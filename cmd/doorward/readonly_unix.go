//go:build unix

package main

import (
	"errors"
	"syscall"
)

// mayWrite reports whether this user may make files in a directory.
func mayWrite(dir string) bool {
	const writable, enterable = 2, 1
	return syscall.Access(dir, writable|enterable) == nil
}

// isReadOnly reports whether a directory is on a read-only file system.
func isReadOnly(dir string) bool {
	const writable = 2
	return errors.Is(syscall.Access(dir, writable), syscall.EROFS)
}
