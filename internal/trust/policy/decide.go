package policy

// Decision about a request. Invariant: every act of a caller that is not valid is denied,
// and every act of a started agent that is denied to one of its ancestors.

import "github.com/doorward/doorward/internal/trust/principal"

// Decide answers q. An act of a started agent is allowed if it is allowed to the agent
// and to each of its ancestors; otherwise the first denial is the answer.
func (s *Set) Decide(q Request) Decision {
	d := s.decideHeld(&q)
	for who := q.Who.Parent(); who != nil && d.Allow; who = who.Parent() {
		// The session id that the agent echoes says nothing about its ancestor's program.
		q.Who, q.SameProgram = who, false
		above := s.decideHeld(&q)
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

// beyondParent is the reason of a denial that comes from an ancestor of the agent.
const beyondParent = "the agent or person that started this agent is not permitted either"

// decideAlone answers q for its caller, without its ancestors and without tools.ask.
func (s *Set) decideAlone(q *Request) Decision {
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

// Decisions without a permit, each with its reason. A scope that is not verified grants
// nothing. It does not count as a missing scope, because without a scope a token has all rights.
var (
	nobody        = Decision{Rule: "default.nobody", Reason: "no rule allows this principal"}
	outside       = Decision{Rule: "token.scope", Reason: "outside the token's scope"}
	outsideSpawn  = Decision{Rule: "default.spawn", Reason: "outside the rights of this started agent"}
	tokenAdmin    = Decision{Rule: "default.token-no-admin", Reason: "this token has no admin scope"}
	unknownAction = Decision{Rule: "default.unknown-action", Reason: "Doorward itself has no such action"}
)

// unpermitted returns the denial for a request that no rule permits, with the most
// specific reason.
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
