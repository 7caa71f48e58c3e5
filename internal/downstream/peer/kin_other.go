//go:build !linux

package peer

// Kinship cannot be told on this system: ErrLineage.
func Kinship([]string) ([]Kin, error) { return nil, ErrLineage }

// First cannot be told either: empty.
func First() string { return "" }

// HoldsTerminal cannot be told either: false.
func HoldsTerminal(Kin, Kin) bool { return false }
