//go:build !linux

package peer

// Kinship returns ErrLineage: this system does not report it.
func Kinship([]string) ([]Kin, error) { return nil, ErrLineage }

// LoginOf is NoLogin: this system does not report it.
func LoginOf(int32) uint32 { return NoLogin }

// First is empty: this system does not report it.
func First() string { return "" }

// HoldsTerminal is false: this system does not report it.
func HoldsTerminal(Kin, Kin) bool { return false }
