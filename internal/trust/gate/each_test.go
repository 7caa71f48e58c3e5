package gate

import (
	"errors"
	"slices"
	"testing"
)

// An act on several servers is decided for each, charged once and recorded once with
// those that policy allows; none allowed is no act.
func TestAnActOnSeveralServersIsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(), b.Log, Limits{Calls: 1})
	list := Act{Who: owner, Action: "tools/list", Bytes: 7}
	p, allowed, err := g.EnterEach(list, []string{"ghost", "notes", "web"})
	if err != nil || !slices.Equal(allowed, []string{"notes"}) {
		t.Fatal(allowed, err)
	}
	var refusal *Refusal
	if _, _, err := g.EnterEach(list, []string{"notes"}); !errors.As(err, &refusal) || refusal.Rule != RuleCalls {
		t.Errorf("beyond the limit: %v", err)
	}
	p.Leave("ok", 99)
	if _, allowed, err := g.EnterEach(list, nil); allowed != nil || err != nil {
		t.Errorf("on no server: %v %v", allowed, err)
	}
	all := b.lines()
	if len(all) != 3 || all[0].Kind != "decision" || all[0].Seq != p.Ref || all[0].Resource != "" || all[1].Decision != "deny" || all[2].Ref != p.Ref || all[2].Bytes != 99 {
		t.Errorf("%+v", all)
	}
}
