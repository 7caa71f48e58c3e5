package gate

import (
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/trust/audit"
)

// EnterEach is Enter for one act on several servers. Policy decides it for each of
// them; it is charged and recorded once, with the number and the names of those that
// policy allows, which are returned in the order of servers. What policy denies leaves
// no record here. None allowed: there is no act, and no Pass.
func (g *Gate) EnterEach(a Act, servers []string) (p Pass, allowed []string, err error) {
	set := g.policy.Load()
	var rules []string
	for _, a.Server = range servers {
		d := set.Decide(question(a))
		if !d.Allow {
			continue
		}
		allowed = append(allowed, a.Server)
		if !slices.Contains(rules, d.Rule) {
			rules = append(rules, d.Rule)
		}
	}
	if len(allowed) == 0 {
		return Pass{}, nil, nil
	}
	a.Server, a.Args, a.servers = "", nil, int64(len(allowed))
	used := g.accountOf(&a)
	if l := g.charge(used, &a); l.rule != "" {
		return Pass{}, nil, g.refuse(a, l, 0)
	}
	p = Pass{gate: g, act: a, used: used, rule: strings.Join(rules, " ")}
	r := p.allowed()
	r.Detail = []audit.Field{{Name: "servers", Value: strings.Join(allowed, " ")}}
	if p.Ref, err = g.log.Append(&r); err != nil {
		used.leave(&a)
		return Pass{}, nil, unrecorded(a, p.rule, err)
	}
	return p, allowed, nil
}
