//go:build !linux

package peer

import "github.com/doorward/doorward/internal/downstream/attest"

// Ancestors cannot be told on this system: ErrLineage.
func Ancestors(*attest.Credentials) ([]string, error) { return nil, ErrLineage }

// AncestorsOf cannot be told either: ErrLineage.
func AncestorsOf(Holder) ([]string, error) { return nil, ErrLineage }
