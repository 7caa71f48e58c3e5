package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// TestADeferredActRecordsItself: a deferred act is not in the log until it is
// recorded with its effect, and then once, with its own action and rule.
func TestADeferredActRecordsItself(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "shut"), b.Log, Limits{Calls: 1})
	act := call(owner, "open")
	act.Source = "agent_msg"
	p, err := g.Enter(act.Deferred())
	if err != nil {
		t.Fatal(err)
	}
	before := b.State().Seq
	if _, err := g.Enter(act.Deferred()); refusalOf(t, err).Rule != RuleCalls {
		t.Errorf("a second one at the same time: %v", err)
	}
	if n := b.State().Seq - before; n != 1 {
		t.Errorf("%d records, one of a refusal expected", n)
	}
	first, err := g.Record(p.As("agent.send", "peer", "some.rule").Line(audit.Field{Name: "size", Value: "1"}))
	if err != nil || first != before+2 {
		t.Errorf("%d %v", first, err)
	}
	if r := p.Refuse("agent.MAILBOX_FULL", CodeDenied); r.Err != nil || r.Ref != before+3 {
		t.Errorf("%+v", r)
	}
	p.Leave("ok", 0)
	if p, err = g.Enter(act.Deferred()); err != nil {
		t.Errorf("its place is not given back: %v", err)
	}
	p.Leave("ok", 0)
	if _, err := g.Enter(call(owner, "shut").Deferred()); refusalOf(t, err).Code != CodeDenied {
		t.Errorf("%v", err)
	}
	if policy, rate, limit, turned := g.Refusals(); policy != 1 || rate != 0 || limit != 1 || turned != 1 {
		t.Errorf("counted: policy %d, rate %d, limit %d, turned %d", policy, rate, limit, turned)
	}
	got := records(t, b)
	want := []string{
		"agent_msg deny limits.calls_per_principal tools/call notes/open",
		"agent_msg allow some.rule agent.send peer",
		"agent_msg deny agent.MAILBOX_FULL tools/call notes/open",
		"gate deny mcpServers.notes.doorward.tools.deny[0] tools/call notes/shut",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestAContextHasOnlyThePassPutIntoIt: a context has a pass only where one was put into it.
func TestAContextHasOnlyThePassPutIntoIt(t *testing.T) {
	t.Parallel()
	if _, ok := PassOf(context.Background()); ok {
		t.Error("a pass out of nothing")
	}
	b := openBook(t)
	g := New(rules(t), b.Log, Limits{})
	p, err := g.Enter(call(owner, "open").Deferred())
	if err != nil {
		t.Fatal(err)
	}
	got, ok := PassOf(WithPass(context.Background(), p))
	if !ok || got.Act().Who != owner || got.Act().Session != "5e55" || got.Rule() == "" {
		t.Errorf("%+v %t", got, ok)
	}
}

// TestADeferredActFailsWithoutALog: a deferred act that was let in is refused.
func TestADeferredActFailsWithoutALog(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t), b.Log, Limits{})
	p, err := g.Enter(call(owner, "open").Deferred())
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := g.Record(p.Line()); !errors.Is(err, audit.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if _, err := p.Record(); !errors.Is(err, audit.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func refusalOf(t *testing.T, err error) *Refusal {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("not refused: %v", err)
	}
	return r
}

// records are the decisions in the log, closed, as source decision rule action
// resource.
func records(t *testing.T, b *book) (out []string) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := auditlog.Tail(b.dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range raw {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		if l.Kind == audit.Decision {
			out = append(out, l.Source+" "+l.Decision+" "+l.Rule+" "+l.Action+" "+l.Resource)
		}
	}
	return out
}

// TestARefusalNamesItsKind: a refusal by a limit has a time to wait and no act, and a
// denial has the act and no time. An act counts as recorded after Line only if it is
// deferred.
func TestARefusalNamesItsKind(t *testing.T) {
	t.Parallel()
	b := openBook(t)
	g := New(rules(t, "shut"), b.Log, Limits{})
	p, err := g.Enter(call(owner, "open"))
	if err != nil {
		t.Fatal(err)
	}
	cap, denial := p.Refuse("limits.x", CodeUnavailable), p.Refuse("some.rule", CodeDenied)
	if cap.Wait != capWait || cap.Asked.Action != "" || cap.Ref <= p.Ref {
		t.Errorf("a cap: %+v", cap)
	}
	if denial.Wait != 0 || denial.Asked.Action != "tools/call" || denial.Asked.Name != "open" {
		t.Errorf("a denial: %+v", denial)
	}
	if p.Recorded() || p.Line().Decision == "" || p.Recorded() {
		t.Error("an act that Enter recorded counts as deferred")
	}
	d, err := g.Enter(call(owner, "open").Deferred())
	if err != nil {
		t.Fatal(err)
	}
	if d.Recorded() {
		t.Error("a deferred act is recorded before it is")
	}
	if d.Line(); !d.Recorded() {
		t.Error("a deferred act whose line was made counts as unrecorded")
	}
}
