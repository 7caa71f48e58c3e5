package attest

// arm has nothing to prepare on macOS.
func (g *guard) arm() {}

// Read compares the audit token of the process that used the peer's socket
// last with the one at accept. A read has no writer here: one that writes
// between two others is not seen.
func (g *guard) Read(p []byte) (int, error) {
	if g.broken.Load() {
		return 0, ErrBreach
	}
	n, err := g.c.Read(p)
	if n == 0 || !g.creds.process.token.known {
		return n, err
	}
	switch now, tokenErr := tokenOf(g.c); {
	case tokenErr != nil:
		return 0, g.end(BreachDead)
	case now != g.creds.process.token:
		return 0, g.end(BreachWriter)
	}
	return n, err
}
