//go:build !linux

package peer

import "github.com/doorward/doorward/internal/downstream/attest"

// Nested is false: there are no pid namespaces here.
func Nested(*attest.Credentials) bool { return false }
