//go:build !linux

package peer

import "github.com/doorward/doorward/internal/downstream/attest"

// Ancestors returns ErrLineage: this system does not report it.
func Ancestors(*attest.Credentials) ([]string, error) { return nil, ErrLineage }

// AncestorsOf returns ErrLineage: this system does not report it.
func AncestorsOf(Holder) ([]string, error) { return nil, ErrLineage }
