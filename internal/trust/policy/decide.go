package policy

// Decision about a request. Invariant: a caller that is not valid may do nothing, and a
// started agent nothing that one of its ancestors may not.

import "github.com/doorward/doorward/internal/trust/principal"

// Decide answers q. A started agent may what it may Itself and each of its
// ancestors may too: the first that may not decides.
func (s *Set) Decide(q Request) Decision {
	d := s.decideHeld(q)
	for who := q.Who.Parent(); who != nil && d.Allow; who = who.Parent() {
		// Nothing that the agent echoed says anything of its ancestor's program.
		q.Who, q.Confirmed = who, false
		above := s.decideHeld(q)
		if !above.Allow {
			above.Reason = beyondParent
			return above
		}
		if d.Ask.Rule == "" {
			d.Ask = above.Ask
		}
	}
	return d
}

// beyondParent is why an agent may not what its own rights would allow.
const beyondParent = "whoever started this agent may not either"

// decideAlone answers q for its caller without its ancestors.
func (s *Set) decideAlone(q Request) Decision {
	if !q.Who.Valid() {
		return nobody
	}
	v := s.verdict(q)
	switch {
	case v.settled():
		return v.plain
	case q.Listing:
		return v.listed()
	}
	return s.withArguments(v, q.Args)
}

// Decisions without a rule: why nothing permitted the act. An unproved scope
// allows nothing; in particular it does not count as a missing scope, which
// stands for all rights.
var (
	nobody        = Decision{Rule: "default.nobody", Reason: "no rule allows this principal"}
	outside       = Decision{Rule: "token.scope", Reason: "outside the token's scope"}
	outsideSpawn  = Decision{Rule: "default.spawn", Reason: "outside the rights of this started agent"}
	tokenAdmin    = Decision{Rule: "default.token-no-admin", Reason: "this token has no admin scope"}
	unknownAction = Decision{Rule: "default.unknown-action", Reason: "Doorward itself has no such action"}
)

// unpermitted says why no rule permits q: the nearest of the rules that did
// not.
func unpermitted(c *caller, q Request) Decision {
	switch {
	case c.scoped && c.kind == principal.KindSpawn:
		return outsideSpawn
	case c.scoped:
		return outside
	case c.kind == principal.KindToken && q.Action == ActionAdmin:
		return tokenAdmin
	case q.Server == "" && (c.kind == principal.KindToken || c.kind == principal.KindLoopback):
		return unknownAction
	}
	return nobody
}
