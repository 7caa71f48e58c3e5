package gate

import "github.com/doorward/doorward/internal/trust/audit"

// Withhold is for a rule about what an act touches, which can strike only
// after the act was let in: what its server offers, or what its messages hold.
// It ends the act with result, and the refusal is recorded with a reference to
// what had let it in.
func (g *Gate) Withhold(p Pass, rule, result string) *Refusal {
	g.Leave(p, result, 0)
	return g.refuse(p.act, limit{rule: rule, code: CodeDenied}, p.Ref)
}

// Found records what a content rule met in the messages of an act: the name
// of the rule and how often, never what. ref is the act's decision, 0 for what
// a server said unasked.
func (g *Gate) Found(a Act, ref uint64, rule, result string, n int64) {
	r := record(&a, resource(a))
	r.Kind, r.Source, r.Rule, r.Result, r.Count, r.Ref = audit.Event, "scan", rule, result, n, ref
	g.log.Later(&r)
}
