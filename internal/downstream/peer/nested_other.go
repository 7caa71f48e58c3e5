//go:build !linux

package peer

// Nested is false: there are no pid namespaces here.
func (c *Credentials) Nested() bool { return false }
