package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Spawned is a started agent that runs.
type Spawned struct {
	ID       string
	Launcher string
	Rights   []string             // the words of its scope
	Parent   *principal.Principal // who started it
	Digest   [sha256.Size]byte    // of its token
}

// Facts of a started agent, beside those of its connection.
const (
	factLauncher  = "launcher"
	factStartedBy = "parent"
)

// spawned returns the principal of a connection from the process tree of a
// started agent. A connection from elsewhere never gets this principal, and a
// connection from the tree gets no other: each request bears the agent's own
// token, the agent still runs, and what proved its ancestors still holds.
func (a *Authenticator) spawned(c *Caller, authorization []string) (*principal.Principal, error) {
	token, ok := bearer(authorization)
	if !ok {
		a.failures.missing.Add(1)
		if len(authorization) > 1 {
			return nil, ErrMalformed
		}
		return nil, ErrUnauthenticated
	}
	digest := digestOf(token)
	s := a.spawns(c.Spawn)
	if s == nil || subtle.ConstantTimeCompare(digest[:], s.Digest[:]) != 1 || !a.stands(s.Parent) {
		a.failures.invalid.Add(1)
		return nil, ErrUnauthenticated
	}
	if p := c.who.Load(); p != nil {
		return p, nil
	}
	p := a.spawnPrincipal(c.Unix, s)
	if !p.Valid() {
		return nil, ErrUnauthenticated
	}
	c.who.Store(p)
	return p, nil
}

// spawnPrincipal makes the principal of a started agent. The process may be in
// namespaces of its own; what the kernel says about it counts as for any other
// process.
func (a *Authenticator) spawnPrincipal(p *attest.Credentials, s *Spawned) *principal.Principal {
	if p == nil || p.UID != a.uid || !p.Alive() {
		return nil
	}
	verified := func(name, value string) principal.Fact {
		return principal.Fact{Name: name, Value: value, Grade: principal.Verified}
	}
	facts := []principal.Fact{
		verified(factScope, strings.Join(s.Rights, ",")),
		verified(factLauncher, s.Launcher),
		verified(factStartedBy, s.Parent.Name()),
		number(factUID, p.UID, principal.Attested),
		number(factGID, p.GID, principal.Attested),
		groupsFact(p),
		number(factPID, uint32(p.PID), principal.Observed),
		instanceFact(p),
	}
	if p.Label != "" {
		facts = append(facts, verified(factLabel, p.Label))
		facts[len(facts)-1].Grade = principal.Attested
	}
	if p.Foreign {
		facts = append(facts, principal.Fact{Name: factNamespaces, Value: "foreign", Grade: principal.Observed})
	}
	return principal.New(principal.Spawn(s.ID), facts...).WithLocal().WithParent(s.Parent)
}

// stands reports whether the proofs of a principal and of all its ancestors still
// hold. An agent in between may have ended: agents that it started and that
// outlive it keep their rights, bounded by its rights.
func (a *Authenticator) stands(p *principal.Principal) bool {
	for ; p != nil; p = p.Parent() {
		if kind, _, err := principal.Parse(p.Name()); err != nil || kind != principal.KindSpawn && !a.Holds(p) {
			return false
		}
	}
	return true
}

// spawnHolds is Holds for a started agent: it runs, and its ancestors stand.
func (a *Authenticator) spawnHolds(p *principal.Principal, id string) bool {
	return a.spawns(id) != nil && p.Parent() != nil && a.stands(p.Parent())
}

// showsSpawnToken reports whether a started agent's token is presented.
func showsSpawnToken(authorization []string) bool {
	token, ok := bearer(authorization)
	return ok && strings.HasPrefix(token, SpawnToken)
}
