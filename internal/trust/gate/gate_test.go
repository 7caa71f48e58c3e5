package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/policytest"
)

var owner = principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested})

func rules(t testing.TB, deny ...string) *policy.Set {
	all := policy.List{Allow: []string{"*"}, Deny: deny}
	return policytest.New(t, 1000, map[string]policy.ServerRules{"notes": {Tools: all, Ask: policy.List{Allow: []string{"elicitation"}}}})
}

// book is a real audit log that a test can read.
type book struct {
	*audit.Log
	t   *testing.T
	dir string
}

// line has the fields of a record that the tests compare.
type line struct {
	Seq                                uint64
	Kind, Source, Principal, Session   string
	Action, Resource, Decision, Result string
	Rule                               string
	Bytes                              int64
	Ref                                uint64
	Facts                              json.RawMessage
}

func openBook(t *testing.T) *book {
	t.Helper()
	dir := t.TempDir()
	l, err := audit.Open(dir, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &book{l, t, dir}
}

// lines closes the log and reads it.
func (b *book) lines() []line {
	b.t.Helper()
	if err := b.Close(); err != nil {
		b.t.Fatal(err)
	}
	raw, err := auditlog.Tail(b.dir, 1_000_000)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []line
	for _, r := range raw {
		var l line
		if err := json.Unmarshal(r, &l); err != nil {
			b.t.Fatal(err)
		}
		if l.Source == "gate" {
			out = append(out, l)
		}
	}
	return out
}

func call(who *principal.Principal, tool string) Act {
	return Act{Who: who, Session: "5e55", Action: "tools/call", Server: "notes", Name: tool, Bytes: 12}
}

func TestAllowedActHasOneDecisionAndOneOutcome(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t), b.Log, Limits{})
	p, err := g.Enter(call(owner, "search"))
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := auditlog.Tail(b.dir, 10); !strings.Contains(string(now[len(now)-1]), `"kind":"decision"`) {
		t.Error("the act may go on before its decision is in the file")
	}
	p.Leave("ok", 345)
	got := b.lines()
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	d, o := got[0], got[1]
	if d.Kind != "decision" || d.Decision != "allow" || d.Rule != "default.owner" || d.Resource != "notes/search" || d.Bytes != 12 ||
		d.Principal != "uid:1000" || d.Session != "5e55" || d.Action != "tools/call" || d.Ref != 0 || d.Result != "" || !strings.Contains(string(d.Facts), "attested") {
		t.Errorf("decision %+v", d)
	}
	if o.Kind != "outcome" || o.Ref != d.Seq || o.Ref != p.Ref || o.Result != "ok" || o.Bytes != 345 || o.Decision != "" || o.Resource != "notes/search" {
		t.Errorf("outcome %+v", o)
	}
}

func TestRefusedActHasOneDecisionAndNothingElse(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "drop_*"), b.Log, Limits{})
	acts := []struct {
		act      Act
		rule     string
		resource string
	}{
		{call(owner, "drop_all"), "mcpServers.notes.doorward.tools.deny[0]", "notes/drop_all"},
		{call(nil, "search"), "default.nobody", "notes/search"},
		{call(&principal.Principal{}, "search"), "default.nobody", "notes/search"},
		{call(principal.New("not a name"), "search"), "default.nobody", "notes/search"},
		{call(principal.New("uid:1001"), "search"), "default.nobody", "notes/search"},
		{Act{Who: owner, Action: "tools/list", Server: "ghost"}, "default.unknown-server", "ghost"},
		{Act{Who: owner, Action: policy.AskSampling, Server: "notes"}, "mcpServers.notes.doorward.ask.allow", "notes"},
	}
	var refs []uint64
	for _, a := range acts {
		_, err := g.Enter(a.act)
		var r *Refusal
		if !errors.As(err, &r) || r.Code != CodeDenied || r.Rule != a.rule || r.Err != nil || r.Ref == 0 {
			t.Fatalf("%+v: %+v", a.act, err)
		}
		refs = append(refs, r.Ref)
	}
	got := b.lines()
	if len(got) != len(acts) {
		t.Fatalf("%d records of %d refusals", len(got), len(acts))
	}
	for i, l := range got {
		if l.Kind != "decision" || l.Decision != "deny" || l.Rule != acts[i].rule || l.Seq != refs[i] || l.Resource != acts[i].resource {
			t.Errorf("record %+v, want %+v", l, acts[i])
		}
	}
}

// Without a log every act is refused alike, whether policy allows or denies it:
// nothing is decided without a record.
func TestFailingLogRefuses(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "drop"), b.Log, Limits{})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"search", "drop"} {
		p, err := g.Enter(call(owner, tool))
		var r *Refusal
		if !errors.As(err, &r) || r.Code != CodeUnavailable || r.Ref != 0 || !errors.Is(err, audit.ErrUnavailable) {
			t.Errorf("%s: %v", tool, err)
		}
		if p.Ref != 0 || p.act.Who != nil {
			t.Errorf("%s: a pass came with the refusal", tool)
		}
		if strings.Contains(r.Error(), "search") {
			t.Errorf("the error names what the caller asked for: %v", r)
		}
	}
}

func TestRefusalsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	if s := (&Refusal{Code: CodeDenied, Rule: "r.deny[0]"}).Error(); s != "refused (1403) by r.deny[0]" {
		t.Error(s)
	}
	if s := (&Refusal{Code: CodeUnavailable, Err: errors.New("disk")}).Error(); s != "refused (1503): disk" {
		t.Error(s)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	bob := principal.New("loopback:uid=1000")
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		rate int
		at   []time.Duration // of each call of owner
		want string          // + admitted, - refused
	}{
		{"no limit", 0, make([]time.Duration, 50), strings.Repeat("+", 50)},
		{"a burst of one second", 5, make([]time.Duration, 8), "+++++---"},
		{"one a second", 1, []time.Duration{0, 0, 999 * ms, 1000 * ms, 1001 * ms, 2000 * ms}, "+--+-+"},
		{"refilled step by step", 4, []time.Duration{0, 0, 0, 0, 0, 249 * ms, 250 * ms, 250 * ms, 500 * ms, 499 * ms}, "++++--+-+-"},
		{"a long pause saves no more than a burst", 2, []time.Duration{0, time.Hour, time.Hour, time.Hour}, "+++-"},
		{"steady pace is never refused", 10, steady(60, 100*ms), strings.Repeat("+", 60)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var clock time.Duration
			b := openBook(t)
			g := New(rules(t), b.Log, Limits{CallsPerSecond: c.rate})
			g.clock = func() time.Duration { return clock }
			got := ""
			for _, at := range c.at {
				clock = at
				_, err := g.Enter(call(owner, "search"))
				var r *Refusal
				switch {
				case err == nil:
					got += "+"
				case errors.As(err, &r) && r.Code == CodeRate && r.Ref != 0 && r.Rule == "limits.calls_per_second":
					got += "-"
				default:
					t.Fatal(err)
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if _, err := g.Enter(call(bob, "search")); err != nil {
				t.Errorf("one caller's limit refuses another caller: %v", err)
			}
			if n := len(b.lines()); n != len(c.at)+1 {
				t.Errorf("%d records of %d acts", n, len(c.at)+1)
			}
		})
	}
}

func steady(n int, step time.Duration) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = time.Duration(i) * step
	}
	return out
}

// An act that policy denies uses nothing of the rate, so that a server cannot use up
// the rate of its caller with questions that are denied.
func TestDenialsDoNotUseUpTheRate(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "drop"), b.Log, Limits{CallsPerSecond: 1})
	g.clock = func() time.Duration { return 0 }
	for range 20 {
		g.Enter(call(owner, "drop"))
	}
	if _, err := g.Enter(call(owner, "search")); err != nil {
		t.Error(err)
	}
}

// A new policy holds for the acts that enter after it. Acts that enter meanwhile have
// one decision each, and one outcome if they are allowed.
func TestSetPolicyWhileActsEnter(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t), b.Log, Limits{})
	const workers, each = 4, 50
	var wg sync.WaitGroup
	var mu sync.Mutex
	allowed := 0
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range each {
				p, err := g.Enter(call(owner, fmt.Sprint("t", w)))
				if err == nil {
					p.Leave("ok", 0)
					mu.Lock()
					allowed++
					mu.Unlock()
				}
			}
		}()
	}
	for i := range 20 {
		g.SetPolicy(rules(t, []string{"*"}[:i%2]...))
	}
	wg.Wait()
	g.SetPolicy(rules(t, "*"))
	if _, err := g.Enter(call(owner, "last")); err == nil {
		t.Error("the new policy does not hold")
	}
	if d := g.Allows(policy.Request{Who: owner, Action: "tools/call", Server: "notes", Name: "x"}); d.Allow {
		t.Error("Allows and Enter disagree")
	}
	balance(t, b.lines(), workers*each+1, allowed)
}

// balance checks that each act has one decision, and each allowed act one outcome
// after it.
func balance(t *testing.T, lines []line, acts, allowed int) {
	t.Helper()
	open := make(map[uint64]bool)
	decisions, outcomes := 0, 0
	for _, l := range lines {
		switch l.Kind {
		case "decision":
			decisions++
			if l.Decision == "allow" {
				open[l.Seq] = true
			}
		case "outcome":
			outcomes++
			if !open[l.Ref] {
				t.Errorf("outcome %d of an act that is not open: %d", l.Seq, l.Ref)
			}
			delete(open, l.Ref)
		}
	}
	if decisions != acts || outcomes != allowed || len(open) != 0 {
		t.Errorf("%d acts: %d decisions; %d allowed: %d outcomes, %d without", acts, decisions, allowed, outcomes, len(open))
	}
}

func BenchmarkEnterAndLeave(b *testing.B) {
	g := New(rules(b), openBench(b), Limits{CallsPerSecond: 1_000_000, Calls: 256, Streams: 64})
	a := call(owner, "search")
	b.ReportAllocs()
	for b.Loop() {
		p, err := g.Enter(a)
		if err != nil {
			b.Fatal(err)
		}
		p.Leave("ok", 10)
	}
}

func openBench(b *testing.B) *audit.Log {
	b.Helper()
	l, err := audit.Open(b.TempDir(), audit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}
