package gate

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/policytest"
)

// holding is a policy that holds calls of buy, of two servers.
func holding(t *testing.T) *policy.Set {
	t.Helper()
	held := policy.ServerRules{Tools: policy.List{Allow: []string{"*"}}, Held: []string{"buy"}}
	return policytest.New(t, 1000, map[string]policy.ServerRules{"notes": held, "shop": held})
}

// buy is an act that holding holds.
func buy() Act {
	a := call(owner, "buy")
	a.Args, a.Holds, a.Definition, a.Generation = []byte(`{"n":1}`), true, "d1", 1
	return a
}

func heldOf(t *testing.T, err error) *Held {
	t.Helper()
	var held *Held
	if !errors.As(err, &held) {
		t.Fatalf("%v, want an act that is held", err)
	}
	return held
}

// TestAnApprovalLetsItsActThroughOnce: it has no effect on any other act, after its time, or
// under another policy, and it is not used up by them.
func TestAnApprovalLetsItsActThroughOnce(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(holding(t), b.Log, Limits{})
	_, err := g.Enter(buy())
	binding := heldOf(t, err).Binding
	approval := binding.Approve(time.Now().Add(time.Hour), 9)
	enter := func(change func(*Act), approval *Approval) (Pass, error) {
		a := buy()
		a.Approval = approval
		change(&a)
		return g.Enter(a)
	}
	same := func(*Act) {}
	for name, change := range map[string]func(*Act){
		"another caller": func(a *Act) {
			a.Who = principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested}, principal.Fact{Name: "instance", Value: "x", Grade: principal.Attested})
		},
		"another session":    func(a *Act) { a.Session = "5e56" },
		"another server":     func(a *Act) { a.Server = "shop" },
		"other arguments":    func(a *Act) { a.Args = []byte(`{"n":2}`) },
		"another definition": func(a *Act) { a.Definition = "d2" },
		"another generation": func(a *Act) { a.Generation = 2 },
		"other parts":        func(a *Act) { a.Session, a.Definition = "5e55d", "1" },
	} {
		if _, err := enter(change, approval); heldOf(t, err).Binding == binding {
			t.Errorf("%s has the same binding", name)
		}
	}
	if _, err := enter(same, nil); heldOf(t, err).Binding != binding {
		t.Error("the same act has another binding")
	}
	_, err = enter(same, binding.Approve(time.Now().Add(-time.Second), 9))
	heldOf(t, err)
	set := g.policy.Load()
	g.SetPolicy(holding(t))
	_, err = enter(same, approval)
	heldOf(t, err)
	g.SetPolicy(set)
	p, err := enter(same, approval)
	if err != nil {
		t.Fatal(err)
	}
	p.Leave("ok", 0)
	_, err = enter(same, approval)
	heldOf(t, err)
	if got := b.lines(); len(got) != 2 || got[0].Ref != 9 || got[0].Decision != "allow" || got[1].Ref != got[0].Seq {
		t.Errorf("records %+v", got)
	}
}

// TestAnActThatIsNotHeldNeedsNoApproval: one that it has is not used up, and its record does
// not refer to it.
func TestAnActThatIsNotHeldNeedsNoApproval(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(holding(t), b.Log, Limits{})
	_, err := g.Enter(buy())
	approval := heldOf(t, err).Binding.Approve(time.Now().Add(time.Hour), 9)
	for _, a := range []Act{call(owner, "look"), buy()} {
		a.Approval = approval
		p, err := g.Enter(a)
		if err != nil {
			t.Fatal(err)
		}
		p.Leave("ok", 0)
	}
	var refs []uint64
	for _, l := range b.lines() {
		if l.Decision != "" {
			refs = append(refs, l.Ref)
		}
	}
	if !slices.Equal(refs, []uint64{0, 9}) {
		t.Errorf("the decisions refer to %d", refs)
	}
}

// TestFormMakesArgumentsEqual: an act with Form is bound to the form of its arguments.
func TestFormMakesArgumentsEqual(t *testing.T) {
	t.Parallel()
	set := holding(t)
	lower := func(a Act, args string) Binding {
		a.Args, a.Form = []byte(args), bytes.ToLower
		return bind(set, a)
	}
	if lower(buy(), "A") != lower(buy(), "a") || lower(buy(), "a") == lower(buy(), "b") {
		t.Error("the binding is not that of the form")
	}
	plain := buy()
	plain.Args = []byte("a")
	if bind(set, plain) != lower(buy(), "A") {
		t.Error("without a form the bytes count")
	}
}

// TestAPassHoldsTheActThatItsCallAmountsTo: Hold lets it through with the approval of that act
// only, and once.
func TestAPassHoldsTheActThatItsCallAmountsTo(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(holding(t), b.Log, Limits{})
	p, err := g.Enter(call(owner, "look"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Leave("ok", 0)
	ask, args := policy.Ask{Rule: "r"}, []byte(`{"n":1}`)
	_, err = p.Hold(ask, "buy", args)
	held := heldOf(t, err)
	if held.Act.Name != "buy" || held.Ask.Rule != "r" {
		t.Errorf("%+v", held)
	}
	p.Given = held.Binding.Approve(time.Now().Add(time.Hour), 9)
	_, err = p.Hold(ask, "buy", []byte(`{"n":2}`))
	heldOf(t, err)
	through, err := p.Hold(ask, "buy", args)
	if err != nil || through.act.Approval != p.Given {
		t.Errorf("%v, %+v", err, through.act.Approval)
	}
	_, err = p.Hold(ask, "buy", args)
	heldOf(t, err)
}

// TestOwnLimitsAreForCallsOfTheOwnUser: questions and guidance have the limits of all others.
func TestOwnLimitsAreForCallsOfTheOwnUser(t *testing.T) {
	t.Parallel()
	own := &Limits{Calls: 7}
	l := &Limits{Calls: 1, Own: own, IsOwn: func(name string) bool { return name == "uid:1000" }}
	for kind, want := range map[Kind]*Limits{Call: own, Stream: own, Administration: own, Question: l, Guidance: l} {
		if got := l.of("uid:1000", kind); got != want {
			t.Errorf("kind %d: %+v", kind, got)
		}
		if got := l.of("uid:1001", kind); got != l {
			t.Errorf("kind %d of another user: %+v", kind, got)
		}
	}
	alone := &Limits{Calls: 1}
	if alone.of("uid:1000", Call) != alone {
		t.Error("without limits of the own user there are others")
	}
}
