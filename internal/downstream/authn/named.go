package authn

import (
	"github.com/doorward/doorward/internal/trust/principal"
)

// Named returns the principal that a caller of that name would have, for questions
// about a caller that is not connected. It lacks the facts of a connection. A token
// counts as presented on a listener that is not local; of two tokens of one name the
// newer counts. Named returns nil for a name that no caller can have now (another user,
// an unknown token) and for subjects of access tokens.
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
