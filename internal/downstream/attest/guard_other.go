//go:build !linux && !darwin

package attest

// arm does nothing on this system.
func (g *guard) arm() {}

// Read always fails: this system reports nothing about a peer.
func (g *guard) Read(p []byte) (int, error) { return 0, g.end(BreachUnattested) }
