package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
)

// SpawnToken begins every token of a started agent, so that one that is shown
// where it proves nothing is told apart from a header that is ignored.
const SpawnToken = "dwa_"

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

// spawned is the started agent of a connection that comes from its process
// tree. Nobody is taken for it elsewhere, and nobody there for anybody else:
// each request has to bear the agent's own token, and it runs, and what proved
// its ancestors still does.
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

// spawnPrincipal: the process may be in namespaces of its own, where it looks
// like anything; what the kernel says of it is as good as of any other.
func (a *Authenticator) spawnPrincipal(p *peer.Credentials, s *Spawned) *principal.Principal {
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

// stands reports whether what proved somebody, and everybody above, still
// holds. That an agent in between has ended takes nothing from those that it
// started and that were to outlive it: its rights bound theirs all the same.
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
