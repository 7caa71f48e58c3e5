//go:build !linux

package peer

import "net"

// Unread returns ErrUnreadUnknown on this system.
func Unread(c net.Conn) (int, error) { return 0, ErrUnreadUnknown }

// HungUp returns false on this system.
func HungUp(net.Conn) bool { return false }
