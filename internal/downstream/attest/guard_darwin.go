package attest

// arm does nothing on macOS.
func (g *guard) arm() {}

// Read compares the audit token of the process that used the peer's socket last with the
// one at the accept. macOS does not report the writer of a read: another process that
// writes between two writes of the connecting one is not detected.
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
