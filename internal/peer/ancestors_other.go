//go:build !linux

package peer

// Ancestors cannot be told on this system: ErrLineage.
func Ancestors(*Credentials) ([]string, error) { return nil, ErrLineage }
