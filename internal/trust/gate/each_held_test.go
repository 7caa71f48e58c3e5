package gate

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/test/policytest"
)

// TestAnActOnSeveralServersIsNeverHeld shows that a server on which the act would be held
// is not covered: an act with Each cannot wait for the operator, so Holds and Approval must
// not let it through.
func TestAnActOnSeveralServersIsNeverHeld(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	all := policy.List{Allow: []string{"*"}}
	g := New(policytest.New(t, 1000, map[string]policy.ServerRules{
		"notes": {Tools: all},
		"shop":  {Tools: all, Held: []string{"buy"}},
	}), b.Log, Limits{})
	for _, holds := range []bool{false, true} {
		for _, approval := range []*Approval{nil, {ref: 9}} {
			p, err := g.Enter(Act{Who: owner, Action: policy.ActionCall, Name: "buy", Each: []string{"notes", "shop"}, Holds: holds, Approval: approval})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Servers(); len(got) != 1 || got[0] != "notes" {
				t.Errorf("Holds %v, Approval %v: the act covers %q, want only notes", holds, approval, got)
			}
			p.Leave("ok", 0)
		}
	}
	for _, l := range b.lines() {
		if l.Decision != "" && l.Ref != 0 {
			t.Errorf("the record of an act without approval refers to %d", l.Ref)
		}
	}
}
