//go:build !linux

package peer

import "net/netip"

// Holders cannot find anything on this system.
type Holders struct{}

// NewHolders makes a Holders.
func NewHolders(int32) *Holders { return &Holders{} }

// Find returns ErrUnavailable on this system.
func (*Holders) Find(_, _ netip.AddrPort) (Holder, error) { return Holder{}, ErrUnavailable }

// Still is false: Find never returns a Holder here.
func (*Holders) Still(Holder) bool { return false }

// Eldest returns h: Find never returns a Holder here.
func Eldest(h Holder) Holder { return h }
