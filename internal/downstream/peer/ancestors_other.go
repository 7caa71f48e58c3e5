//go:build !linux

package peer

// Ancestors cannot be told on this system: ErrLineage.
func Ancestors(*Credentials) ([]string, error) { return nil, ErrLineage }

// AncestorsOf cannot be told either: ErrLineage.
func AncestorsOf(Holder) ([]string, error) { return nil, ErrLineage }
