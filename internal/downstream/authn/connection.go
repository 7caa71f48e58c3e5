package authn

import (
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
)

// whoConnected returns the principal of the connection itself; nil: it has none.
func (a *Authenticator) whoConnected(c *Caller) *principal.Principal {
	if c.Unix != nil {
		return a.unixPrincipal(c)
	}
	return a.loopbackPrincipal(c)
}

// unixPrincipal returns the principal of a Unix peer: a process of the daemon's
// user that was alive when it was examined. nil: any other peer.
func (a *Authenticator) unixPrincipal(c *Caller) *principal.Principal {
	if c.Unix.UID != a.uid || !c.Unix.Alive() {
		return nil
	}
	e := observed(c)
	p := principal.New(principal.UID(c.Unix.UID), append(unixFacts(c.Unix), programFacts(e)...)...).WithLocal()
	if e.Image == nil {
		return p
	}
	return p.WithWitness(e.Image)
}

// loopbackPrincipal returns the principal of a caller without a token on a loopback
// listener that requires none. It refuses a socket of another user, as the listener
// does.
func (a *Authenticator) loopbackPrincipal(c *Caller) *principal.Principal {
	switch {
	case !c.OwnerKnown:
		return a.loopback.unknown
	case c.OwnerUID != a.uid:
		return nil
	}
	return a.loopback.own
}

// loopbackCallers holds the two principals that a loopback connection can have. They
// carry no fact about a single connection, so all connections share them.
type loopbackCallers struct{ own, unknown *principal.Principal }

func newLoopbackCallers(uid uint32) loopbackCallers {
	return loopbackCallers{
		own:     principal.New(principal.Loopback(uid), number(factUID, uid, principal.Observed)).WithLocal(),
		unknown: principal.New(principal.LoopbackUnknown, principal.Fact{Name: factUID}).WithLocal(),
	}
}

// observed examines the program of a Unix connection.
func observed(c *Caller) peer.Evidence {
	if c.Observe == nil {
		return peer.Evidence{}
	}
	return c.Observe()
}

// sameProgram returns the principal of a connection as long as the observed
// program runs. When the process executes another program, the connection loses
// its principal for good: the facts were about the earlier program.
func sameProgram(p *principal.Principal) (*principal.Principal, error) {
	if w := p.Witness(); w != nil && !w.Holds() {
		return nil, ErrUnauthenticated
	}
	return p, nil
}
