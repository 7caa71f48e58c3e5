package gate

import (
	"errors"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/trust/audit"
)

// One act on several servers. Invariant: it is charged and recorded once, and it
// covers no server that policy denies.

// ErrNone is the error of Enter for an act on several servers that policy allows on none
// of them. Nothing was charged or recorded, and no Pass was made.
var ErrNone = errors.New("policy allows the act on none of its servers")

// enterEach is Enter for one act on each of a.Each. Policy decides it for each server.
// The act is recorded with the number and the names of the allowed servers, which
// Pass.Servers returns in the same order. A denied server is not recorded here. If policy
// allows no server, the error is ErrNone.
func (g *Gate) enterEach(a Act) (Pass, error) {
	set := g.policy.Load()
	var allowed, rules []string
	for _, a.Server = range a.Each {
		if d := set.Decide(question(&a)); d.Allow {
			allowed = append(allowed, a.Server)
			if !slices.Contains(rules, d.Rule) {
				rules = append(rules, d.Rule)
			}
		}
	}
	if len(allowed) == 0 {
		return Pass{}, ErrNone
	}
	a.Server, a.Args, a.Each, a.Approval, a.servers = "", nil, nil, nil, int64(len(allowed))
	used := g.accountOf(&a)
	if l := g.charge(used, &a); l.rule != "" {
		return Pass{}, g.refuse(a, l, 0)
	}
	p := Pass{gate: g, act: a, servers: allowed, used: used, rule: strings.Join(rules, " ")}
	r := p.allowed()
	r.Detail = []audit.Field{{Name: "servers", Value: strings.Join(allowed, " ")}}
	return p.recorded(r)
}
