//go:build !linux

package peer

import "github.com/doorward/doorward/internal/downstream/attest"

// Terminal is false: this system does not report it.
func Terminal(*attest.Credentials) bool { return false }
