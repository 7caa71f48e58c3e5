//go:build !linux

package peer

import "net"

// Unread cannot tell on this system: ErrUnreadUnknown.
func Unread(c net.Conn) (int, error) { return 0, ErrUnreadUnknown }
