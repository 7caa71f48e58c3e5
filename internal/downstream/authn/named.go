package authn

import (
	"github.com/doorward/doorward/internal/trust/principal"
)

// Named is the principal that a caller of that name would be, for questions
// about somebody who is not there. Facts that only a connection has are missing
// from it. A token is taken to come from a listener that is not local; of two
// of one name it is the newer. Nil for what nobody can be now: another user, a
// token that there is not, a subject that no access token has proved.
func (a *Authenticator) Named(name string) *principal.Principal {
	switch kind, _, err := principal.Parse(name); {
	case err != nil:
		return nil
	case kind == principal.KindToken:
		return a.namedToken(name)
	case name == principal.UID(a.uid):
		return principal.New(name, number(factUID, a.uid, principal.Attested)).WithLocal()
	}
	for _, p := range []*principal.Principal{a.loopback.own, a.loopback.unknown} {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

func (a *Authenticator) namedToken(name string) *principal.Principal {
	now := a.now()
	a.refresh(now)
	var newest *principal.Principal
	creds := a.table.Load().creds
	for i := range creds {
		if c := &creds[i]; c.remote.Name() == name && c.holds(now) {
			newest = c.remote
		}
	}
	return newest
}
