package gate

import (
	"errors"
	"slices"
	"testing"
)

// An act on several servers is decided for each, charged once and recorded once. Its
// pass has those that policy allows. If none is allowed there is an error and no record.
func TestAnActOnSeveralServersIsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t), b.Log, Limits{Calls: 1})
	list := Act{Who: owner, Action: "tools/list", Bytes: 7}
	on := func(servers ...string) Act { list.Each = append([]string{}, servers...); return list }
	p, err := g.Enter(on("ghost", "notes", "web"))
	if err != nil || !slices.Equal(p.Servers(), []string{"notes"}) {
		t.Fatal(p.Servers(), err)
	}
	var refusal *Refusal
	if _, err := g.Enter(on("notes")); !errors.As(err, &refusal) || refusal.Rule != RuleCalls {
		t.Errorf("beyond the limit: %v", err)
	}
	p.Leave("ok", 99)
	for _, servers := range [][]string{{}, {"ghost"}, {"ghost", "web"}} {
		if _, err := g.Enter(on(servers...)); !errors.Is(err, ErrNone) || errors.As(err, &refusal) {
			t.Errorf("on none of %q: %v", servers, err)
		}
	}
	all := b.lines()
	if len(all) != 3 || all[0].Kind != "decision" || all[0].Seq != p.Ref || all[0].Resource != "" || all[1].Decision != "deny" || all[2].Ref != p.Ref || all[2].Bytes != 99 {
		t.Errorf("%+v", all)
	}
}
