package gate

import (
	"errors"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/test/policytest"
)

// The decision about an act refers to the approval that let it through, and to none if the
// act needed none. The pass has no arguments in either case.
func TestADecisionRefersToTheApprovalThatItNeeded(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(policytest.New(t, 1000, map[string]policy.ServerRules{
		"shop": {Tools: policy.List{Allow: []string{"*"}}, Held: []string{"buy"}},
	}), b.Log, Limits{})
	buy := Act{Who: owner, Action: policy.ActionCall, Server: "shop", Name: "buy", Args: []byte(`{"n":1}`), Holds: true}
	_, err := g.Enter(buy)
	held, ok := errors.AsType[*Held](err)
	if !ok {
		t.Fatalf("the act was not held: %v", err)
	}
	buy.Approval = held.Binding.Approve(time.Now().Add(time.Hour), 7)
	look := buy
	look.Name = "look"
	for _, a := range []Act{look, buy} {
		p, err := g.Enter(a)
		if err != nil {
			t.Fatal(err)
		}
		if p.Act().Args != nil {
			t.Errorf("the pass of %s has the arguments %s", a.Name, p.Act().Args)
		}
		p.Leave("ok", 0)
	}
	got := map[string]uint64{}
	for _, l := range b.lines() {
		if l.Decision != "" {
			got[l.Resource] = l.Ref
		}
	}
	if got["shop/look"] != 0 || got["shop/buy"] != 7 || len(got) != 2 {
		t.Errorf("the decisions refer to %v, want 7 for shop/buy alone", got)
	}
}
