//go:build !linux

package peer

import "github.com/doorward/doorward/internal/downstream/attest"

// Nested is false: this system has no pid namespaces.
func Nested(*attest.Credentials) bool { return false }
