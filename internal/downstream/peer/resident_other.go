//go:build !linux

package peer

// Unmap does nothing here.
func Unmap() error { return nil }

// Mapped returns 0 here.
func Mapped() int { return 0 }
