//go:build !linux

package peer

// Unmap does nothing here.
func Unmap() error { return nil }
