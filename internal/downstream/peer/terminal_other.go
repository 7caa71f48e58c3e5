//go:build !linux

package peer

import "github.com/doorward/doorward/internal/downstream/attest"

// Terminal cannot be told on this system: false.
func Terminal(*attest.Credentials) bool { return false }
