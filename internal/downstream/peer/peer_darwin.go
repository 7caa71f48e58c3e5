package peer

import "net/netip"

// MaxSocketPath is the longest path, in bytes, that a socket can be bound to.
const MaxSocketPath = 103

// OwnerOfTCP returns ErrUnavailable: macOS has no unprivileged way.
func OwnerOfTCP(local, remote netip.AddrPort) (uint32, error) { return 0, ErrUnavailable }
