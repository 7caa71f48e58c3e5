package gate

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/policytest"
)

var other = principal.New("loopback:uid=1000")

// enter gives the pass of an act, or its refusal.
func enter(t *testing.T, g *Gate, a Act) (Pass, *Refusal) {
	t.Helper()
	p, err := g.Enter(a)
	var r *Refusal
	if err != nil && !errors.As(err, &r) {
		t.Fatal(err)
	}
	return p, r
}

func of(kind Kind, a Act) Act {
	a.Kind = kind
	return a
}

func TestCallsUnderWayAreCounted(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "drop"), b.Log, Limits{Calls: 2})
	first, _ := enter(t, g, call(owner, "a"))
	_, r := enter(t, g, call(owner, "b"))
	if r != nil {
		t.Fatal(r)
	}
	_, r = enter(t, g, call(owner, "c"))
	if r == nil || r.Code != CodeUnavailable || r.Rule != RuleCalls || r.Ref == 0 || r.RetryAfter() != 1 || r.Err != nil {
		t.Fatalf("the third: %+v", r)
	}
	if _, r := enter(t, g, call(owner, "drop")); r.Code != CodeDenied {
		t.Errorf("what policy denies: %+v", r)
	}
	if _, r := enter(t, g, call(other, "a")); r != nil {
		t.Errorf("one caller's limit refuses another caller: %v", r)
	}
	first.Leave("ok", 0)
	if _, r := enter(t, g, call(owner, "d")); r != nil {
		t.Errorf("after one has left: %v", r)
	}
	if _, r := enter(t, g, call(owner, "e")); r == nil {
		t.Error("a call that left freed two places")
	}
	var denied []string
	for _, l := range b.lines() {
		if l.Decision == "deny" {
			denied = append(denied, l.Rule+" "+l.Resource)
		}
	}
	if want := "limits.calls_per_principal notes/c,mcpServers.notes.doorward.tools.deny[0] notes/drop,limits.calls_per_principal notes/e"; strings.Join(denied, ",") != want {
		t.Errorf("recorded %q", denied)
	}
}

// Two processes of one user share the limits of one principal.
func TestLimitsGoByNameAndNotByInstance(t *testing.T) {
	t.Parallel()
	g := New(rules(t), openBook(t).Log, Limits{Calls: 1})
	one := principal.New("uid:1000", principal.Fact{Name: principal.FactInstance, Value: "1", Grade: principal.Attested})
	two := principal.New("uid:1000", principal.Fact{Name: principal.FactInstance, Value: "2", Grade: principal.Attested})
	enter(t, g, call(one, "a"))
	if _, r := enter(t, g, call(two, "a")); r == nil {
		t.Error("each process has the whole limit")
	}
}

// Streams and calls have separate limits: streams take no room from calls, and calls
// none from streams.
func TestStreamsAreCountedApart(t *testing.T) {
	t.Parallel()
	g := New(rules(t), openBook(t).Log, Limits{Calls: 1, Streams: 2})
	listen := of(Stream, Act{Who: owner, Action: "subscriptions/listen", Server: "notes"})
	first, _ := enter(t, g, listen)
	enter(t, g, listen)
	if _, r := enter(t, g, listen); r == nil || r.Code != CodeUnavailable || r.Rule != RuleStreams {
		t.Fatalf("the third stream: %+v", r)
	}
	if _, r := enter(t, g, call(owner, "a")); r != nil {
		t.Errorf("streams used up the calls: %v", r)
	}
	if _, r := enter(t, g, call(owner, "a")); r == nil || r.Rule != RuleCalls {
		t.Errorf("the second call: %+v", r)
	}
	first.Leave("ended", 0)
	if _, r := enter(t, g, listen); r != nil {
		t.Errorf("after one has ended: %v", r)
	}
}

// The questions of a server have a rate of their own. A flood of them takes nothing
// from the calls of the caller and the questions of other servers.
func TestAServersQuestionsHaveARateOfTheirOwn(t *testing.T) {
	t.Parallel()
	set := policytest.New(t, 1000, map[string]policy.ServerRules{
		"notes": {Tools: policy.List{Allow: []string{"*"}}, Ask: policy.List{Allow: []string{"elicitation"}}},
		"tidy":  {Ask: policy.List{Allow: []string{"elicitation"}}}})
	g := New(set, openBook(t).Log, Limits{CallsPerSecond: 3, Calls: 2})
	g.clock = func() time.Duration { return 0 }
	ask := func(server string) Act {
		return of(Question, Act{Who: owner, Action: policy.AskElicitation, Server: server})
	}
	for i := range 10 {
		if _, r := enter(t, g, ask("notes")); (r != nil) != (i >= 3) || r != nil && r.Code != CodeRate {
			t.Fatalf("question %d: %v", i, r)
		}
	}
	if _, r := enter(t, g, call(owner, "a")); r != nil {
		t.Errorf("a call of the caller that was asked: %v", r)
	}
	if _, r := enter(t, g, ask("tidy")); r != nil {
		t.Errorf("another server's question: %v", r)
	}
}

func TestTheOperatorGetsThroughAtTheLimit(t *testing.T) {
	t.Parallel()
	g := New(rules(t), openBook(t).Log, Limits{CallsPerSecond: 1, Calls: 1})
	g.clock = func() time.Duration { return 0 }
	enter(t, g, call(owner, "a"))
	if _, r := enter(t, g, call(owner, "a")); r == nil {
		t.Fatal("the second call is not refused: the test shows nothing")
	}
	admin := of(Administration, Act{Who: owner, Action: policy.ActionAdmin, Name: "status"})
	if _, r := enter(t, g, admin); r != nil {
		t.Error(r)
	}
	if _, r := enter(t, g, admin); r == nil || r.Code != CodeRate {
		t.Errorf("administration has no rate: %v", r)
	}
}

// A request that fans out to many servers is one call.
func TestActsOfOneRequestCountAsOne(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "drop"), b.Log, Limits{CallsPerSecond: 2, Calls: 1})
	g.clock = func() time.Duration { return 0 }
	with := func(c *Charge, a Act) Act { a.With = c; return a }
	fan := new(Charge)
	if _, r := enter(t, g, with(fan, call(owner, "drop"))); r == nil {
		t.Fatal("policy counts for each")
	}
	var passes []Pass
	for range 5 {
		p, r := enter(t, g, with(fan, call(owner, "a")))
		if r != nil {
			t.Fatal(r)
		}
		passes = append(passes, p)
	}
	for i, p := range passes {
		if _, r := enter(t, g, call(owner, "a")); r == nil || r.Rule != RuleCalls {
			t.Errorf("with %d of the request under way: %v", 5-i, r)
		}
		p.Leave("ok", 0)
	}
	p, r := enter(t, g, with(fan, call(owner, "late")))
	if r != nil {
		t.Errorf("a late part of a request that is paid for: %v", r)
	}
	if _, r := enter(t, g, call(owner, "a")); r == nil {
		t.Error("a late part takes no place")
	}
	p.Leave("ok", 0)
	if _, r := enter(t, g, call(owner, "a")); r != nil {
		t.Errorf("the second of the second: %v", r)
	}
	refused := new(Charge)
	for range 2 {
		if _, r := enter(t, g, with(refused, call(owner, "a"))); r == nil || r.Rule != RuleCalls {
			t.Errorf("a request that finds no room: %v", r)
		}
	}
}

// A call that is refused, or whose decision cannot be recorded, uses up neither the
// rate nor a place.
func TestWhatIsRefusedUsesNothing(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t), b.Log, Limits{CallsPerSecond: 2, Calls: 1})
	g.clock = func() time.Duration { return 0 }
	p, _ := enter(t, g, call(owner, "a"))
	for range 5 {
		if _, r := enter(t, g, call(owner, "a")); r == nil || r.Rule != RuleCalls {
			t.Fatalf("%v", r)
		}
	}
	p.Leave("ok", 0)
	p, r := enter(t, g, call(owner, "a"))
	if r != nil {
		t.Fatalf("the rate was used up by what found no room: %v", r)
	}
	p.Leave("ok", 0)
	for range 3 {
		if _, r := enter(t, g, call(owner, "a")); r == nil || r.Rule != RuleRate {
			t.Fatalf("a place was used up by what came too fast: %v", r)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	g.clock = func() time.Duration { return time.Hour }
	for range 3 {
		if _, r := enter(t, g, call(owner, "a")); r == nil || r.Err == nil || r.Rule == RuleCalls {
			t.Fatalf("a place was used up by what was not recorded: %v", r)
		}
	}
}

// A call that is refused for its rate is admitted after the wait it was told, and not before.
func TestARefusedCallIsAdmittedAfterItsWait(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{1, 2, 3, 7, 200} {
		var clock time.Duration
		g := New(rules(t), openBook(t).Log, Limits{CallsPerSecond: rate})
		g.clock = func() time.Duration { return clock }
		for range rate {
			if _, r := enter(t, g, call(owner, "a")); r != nil {
				t.Fatal(r)
			}
		}
		for range 5 {
			_, r := enter(t, g, call(owner, "a"))
			if r == nil || r.Wait <= 0 || r.Wait > time.Second || r.RetryAfter() != 1 {
				t.Fatalf("rate %d: %+v", rate, r)
			}
			at := clock + r.Wait
			clock = at - 1
			if _, r := enter(t, g, call(owner, "a")); r == nil {
				t.Errorf("rate %d: admitted before the time that was told", rate)
			}
			clock = at
			if _, r := enter(t, g, call(owner, "a")); r != nil {
				t.Errorf("rate %d: refused at the time that was told: %v", rate, r)
			}
		}
	}
	for wait, seconds := range map[time.Duration]int{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90} {
		if got := (&Refusal{Wait: wait}).RetryAfter(); got != seconds {
			t.Errorf("%v is told as %d s", wait, got)
		}
	}
}

// The gate refuses and records an act over a limit that another package keeps, once,
// under the name of the limit. A denial by policy comes first.
func TestLimitsKeptElsewhereAreRecordedHere(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "drop"), b.Log, Limits{Calls: 1})
	const rule = "mcpServers.notes.doorward.max_concurrency"
	over := func(a Act) Act { a.Over = rule; return a }
	if _, r := enter(t, g, over(call(owner, "a"))); r == nil || r.Code != CodeUnavailable || r.Rule != rule || r.Ref == 0 {
		t.Errorf("%+v", r)
	}
	if _, r := enter(t, g, over(call(owner, "drop"))); r == nil || r.Code != CodeDenied {
		t.Errorf("%+v", r)
	}
	if r := g.Refuse(call(owner, "b"), "limits.sessions", CodeUnavailable, time.Minute); r.Code != CodeUnavailable || r.Ref == 0 || r.RetryAfter() != 60 {
		t.Errorf("%+v", r)
	}
	p, r := enter(t, g, call(owner, "c"))
	if r != nil {
		t.Fatal(r)
	}
	p.Leave("busy", 0)
	if r := p.Refuse("limits.children", CodeUnavailable); r.Code != CodeUnavailable || r.Ref == 0 || r.Ref == p.Ref {
		t.Errorf("%+v", r)
	}
	if _, r := enter(t, g, call(owner, "d")); r != nil {
		t.Errorf("an act that was overruled keeps its place: %v", r)
	}
	var got []string
	for _, l := range b.lines() {
		text := l.Kind + " " + l.Decision + l.Result
		if l.Decision == "deny" {
			text += " " + l.Rule
		}
		if l.Ref == p.Ref {
			text += " of c"
		}
		got = append(got, text)
	}
	want := []string{"decision deny " + rule, "decision deny mcpServers.notes.doorward.tools.deny[0]", "decision deny limits.sessions",
		"decision allow", "outcome busy of c", "decision deny limits.children of c", "decision allow"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded\n%s", strings.Join(got, "\n"))
	}
}

// Concurrent calls of a caller are never more than its limit, all places are free
// afterwards, and calls of another caller are not refused.
func TestTheCapHoldsUnderContention(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	const limit, workers, each = 3, 8, 60
	g := New(rules(t), b.Log, Limits{Calls: limit})
	var inside, most, refused, strangers atomic.Int32
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				p, err := g.Enter(call(owner, "a"))
				if err != nil {
					refused.Add(1)
					continue
				}
				for n := inside.Add(1); ; {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				inside.Add(-1)
				p.Leave("ok", 0)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range each {
				p, err := g.Enter(call(other, "a"))
				if err != nil {
					strangers.Add(1)
					continue
				}
				p.Leave("ok", 0)
			}
		})
	}
	wg.Wait()
	if most.Load() > limit || strangers.Load() > 0 {
		t.Errorf("%d inside, %d refused of another", most.Load(), strangers.Load())
	}
	for range limit {
		if _, r := enter(t, g, call(owner, "a")); r != nil {
			t.Fatalf("a place is lost: %v", r)
		}
	}
	if _, r := enter(t, g, call(owner, "a")); r == nil {
		t.Error("a place is gained")
	}
}

func BenchmarkEnterAndLeaveOfTwoAtOnce(b *testing.B) {
	g := New(rules(b), openBench(b), Limits{CallsPerSecond: 1_000_000, Calls: 256})
	b.ReportAllocs()
	var n atomic.Int32
	b.RunParallel(func(pb *testing.PB) {
		a := call([]*principal.Principal{owner, other}[n.Add(1)%2], "search")
		for pb.Next() {
			p, err := g.Enter(a)
			if err != nil {
				b.Error(err)
				return
			}
			p.Leave("ok", 10)
		}
	})
}

// BenchmarkCharge is the cost of the limits for one act.
func BenchmarkCharge(b *testing.B) {
	g := New(rules(b), nil, Limits{CallsPerSecond: 1_000_000_000, Calls: 256})
	a := call(owner, "search")
	b.ReportAllocs()
	for b.Loop() {
		used := g.accountOf(&a)
		if l := g.charge(used, &a); l.rule != "" {
			b.Fatal(l)
		}
		used.leave(&a)
	}
}

// Reading instructions takes no room from calls, and has the same rate.
func TestGuidanceTakesNoRoomFromCalls(t *testing.T) {
	t.Parallel()
	g := New(rules(t), openBook(t).Log, Limits{CallsPerSecond: 3, Calls: 1})
	g.clock = func() time.Duration { return 0 }
	ask := of(Guidance, Act{Who: owner, Action: "instructions.read", Server: "notes"})
	for i := range 4 {
		_, r := enter(t, g, ask)
		if (r != nil) != (i == 3) || r != nil && r.Code != CodeRate {
			t.Errorf("question %d: %v", i, r)
		}
	}
	if _, r := enter(t, g, call(owner, "a")); r != nil {
		t.Errorf("a call beside it: %v", r)
	}
}

// A call that waits takes no place, alone or as one of several of a request,
// and frees none when it ends.
func TestACallThatWaitsTakesNoPlace(t *testing.T) {
	t.Parallel()
	for what, with := range map[string]*Charge{"alone": nil, "one of a request": {}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := New(rules(t), openBook(t).Log, Limits{Calls: 1})
			for range 3 {
				waits := call(owner, "a").Deferred()
				waits.With = with
				p, r := enter(t, g, waits)
				if r != nil {
					t.Fatal(r)
				}
				if _, r := enter(t, g, call(owner, "b")); r == nil || r.Rule != RuleCalls {
					t.Fatalf("a call that does not wait takes no place: %v", r)
				}
				p.Waits()
				p.As("agent.read", "agent/inbox", "r").Waits()
				second, r := enter(t, g, call(owner, "b"))
				if r != nil {
					t.Fatalf("a call that waits takes a place: %v", r)
				}
				p.Leave("ok", 0)
				if _, r := enter(t, g, call(owner, "c")); r == nil {
					t.Fatal("the end of a call that waited freed the place of another")
				}
				second.Leave("ok", 0)
			}
		})
	}
}
