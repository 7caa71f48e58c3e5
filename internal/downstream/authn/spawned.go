package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Spawned is a started agent that is running.
type Spawned struct {
	ID       string
	Launcher string
	Rights   []string             // the words of its scope
	Parent   *principal.Principal // the principal that started it
	Digest   [sha256.Size]byte    // of the agent's token
}

// Names of the facts of a started agent, beside those of its connection.
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
// namespaces of its own; the kernel's facts about it are used nevertheless.
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

// stands reports whether the proofs of a principal and of all its ancestors are still
// valid. A started agent in between may have ended: the agents that it started keep
// their rights, bounded by its rights.
func (a *Authenticator) stands(p *principal.Principal) bool {
	for ; p != nil; p = p.Parent() {
		if kind, _, err := principal.Parse(p.Name()); err != nil || kind != principal.KindSpawn && !a.Holds(p) {
			return false
		}
	}
	return true
}

// spawnHolds is Holds for a started agent: it runs, and the proofs of its ancestors are
// valid.
func (a *Authenticator) spawnHolds(p *principal.Principal, id string) bool {
	return a.spawns(id) != nil && p.Parent() != nil && a.stands(p.Parent())
}

// showsSpawnToken reports whether the token of a started agent is presented.
func showsSpawnToken(authorization []string) bool {
	token, ok := bearer(authorization)
	return ok && strings.HasPrefix(token, SpawnToken)
}
