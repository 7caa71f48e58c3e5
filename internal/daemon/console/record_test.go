package console

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/history"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/test/overload"
)

func withheld(item, after string) []pin.Withheld {
	return []pin.Withheld{{Item: item, Reason: pin.New, Digest: "d", After: []byte(after)}}
}

// logOf is a log of calls with their outcomes: every tenth is denied, every
// hundredth fails, and every thousandth is an act of the operator.
func logOf(t testing.TB, calls int) string {
	t.Helper()
	dir := t.TempDir()
	log, err := audit.Open(dir, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who := principal.New("uid:1000", principal.Fact{Name: "exe", Value: "/usr/bin/codex", Grade: principal.Observed})
	var lines []*audit.Record
	seq := log.State().Seq
	for i := range calls {
		r := &audit.Record{Kind: audit.Decision, Source: "gate", Who: who, Session: fmt.Sprint("s", i%7), Action: "tools/call",
			Resource: fmt.Sprintf("notes/tool%d", i%5), Decision: audit.Allow, Rule: "default.owner", Bytes: 10}
		if i%1000 == 999 {
			r.Action, r.Resource = "admin", "/ui/now"
		}
		result := "ok"
		if i%100 == 50 {
			result = "error"
		}
		if i%10 == 3 {
			r.Decision, r.Rule = audit.Deny, "mine.no"
		}
		lines = append(lines, r)
		if seq++; r.Decision == audit.Allow {
			lines = append(lines, &audit.Record{Kind: audit.Outcome, Source: "gate", Who: who, Action: r.Action, Resource: r.Resource, Result: result, Bytes: 20, Ref: seq})
			seq++
		}
		if len(lines) >= 500 || i == calls-1 {
			if _, err := log.AppendGroup(lines); err != nil {
				t.Fatal(err)
			}
			lines = lines[:0]
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAPageOfActsIsTheSameSizeWhateverTheLogHolds: pages of a log of 100,000 records
// have perPage acts, and 20 pages have no act twice.
func TestAPageOfActsIsTheSameSizeWhateverTheLogHolds(t *testing.T) {
	t.Parallel()
	dir := logOf(t, 55_000) // more than 100,000 lines
	limit := time.Second + overload.Late()
	began := time.Now()
	first, err := history.Search(context.Background(), dir, history.Filter{}, 0, perPage)
	if err != nil || len(first.Entries) != perPage || first.Next == 0 {
		t.Fatalf("%d entries, next %d, %v", len(first.Entries), first.Next, err)
	}
	if d := time.Since(began); d > limit {
		t.Errorf("the first page takes %s", d)
	}
	none, err := history.Search(context.Background(), dir, history.Filter{Server: "ghost"}, 0, perPage)
	if err != nil || len(none.Entries) != 0 || none.Next == 0 {
		t.Errorf("a search for what is not there: %d entries, next %d, %v", len(none.Entries), none.Next, err)
	}
	seen, last := 0, uint64(1<<62)
	for before, page := uint64(0), 0; page < 20; page++ {
		f, err := history.Search(context.Background(), dir, history.Filter{}, before, perPage)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range f.Entries {
			if e.Seq >= last {
				t.Fatalf("record %d comes after %d", e.Seq, last)
			}
			last = e.Seq
			seen++
		}
		before = f.Next
	}
	if seen != 20*perPage {
		t.Errorf("20 pages show %d acts", seen)
	}
}

func TestFiltersChooseActs(t *testing.T) {
	t.Parallel()
	dir := logOf(t, 2000)
	all := func(f history.Filter) (out []history.Entry) {
		for before := uint64(0); ; {
			page, err := history.Search(context.Background(), dir, f, before, 500)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, page.Entries...)
			if before = page.Next; before == 0 {
				return out
			}
		}
	}
	for _, c := range []struct {
		name string
		f    history.Filter
		want int
	}{
		{"acts of callers", history.Filter{}, 1998},
		{"everything", history.Filter{All: true}, 2002}, // and the log's own start and stop
		{"denied", history.Filter{Outcome: "denied"}, 200},
		{"failed", history.Filter{Outcome: "error"}, 20},
		{"a tool", history.Filter{Tool: "tool3"}, 400},
		{"a server", history.Filter{Server: "notes"}, 1998},
		{"a program", history.Filter{Client: "CODEX"}, 1998},
		{"a principal", history.Filter{Client: "uid:1000"}, 1998},
		{"another program", history.Filter{Client: "claude"}, 0},
		{"a rule", history.Filter{Rule: "mine.no"}, 200},
		{"the future", history.Filter{From: time.Now().Add(time.Hour)}, 0},
		{"the past", history.Filter{To: time.Now().Add(-time.Hour)}, 0},
	} {
		if got := all(c.f); len(got) != c.want {
			t.Errorf("%s: %d, want %d", c.name, len(got), c.want)
		}
	}
}

func TestAnActIsShownWithItsOutcome(t *testing.T) {
	t.Parallel()
	dir := logOf(t, 60)
	f, err := history.Search(context.Background(), dir, history.Filter{}, 0, 500)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := make(map[string]int)
	for _, e := range f.Entries {
		outcomes[e.Outcome]++
		if e.Client != "codex" || e.Server != "notes" || e.Outcome == "ok" && (e.Took == "" || e.Answered != 20) {
			t.Errorf("%+v", e)
		}
	}
	if outcomes["ok"] != 53 || outcomes["denied"] != 6 || outcomes["error"] != 1 {
		t.Errorf("%v", outcomes)
	}
}

func TestTheHourCountsEachActOnce(t *testing.T) {
	t.Parallel()
	dir := logOf(t, 2000)
	h := newHour(dir, time.Now)
	for range 3 {
		s, err := h.read(context.Background())
		if err != nil || s.Calls != 1798 || s.Refused != 200 || len(s.Clients) != 1 || s.Clients[0].Client != "codex" {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	h.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if s, err := h.read(context.Background()); err != nil || s.Calls != 0 || len(s.Clients) != 0 {
		t.Errorf("two hours later: %+v, %v", s, err)
	}
}

func TestTheClientOfAShimIsItsParent(t *testing.T) {
	t.Parallel()
	for want, facts := range map[string][]history.Fact{
		"claude": {{Name: "exe", Value: "/opt/bin/doorward"}, {Name: "parent_exe", Value: "/usr/bin/claude"}},
		"codex":  {{Name: "exe", Value: "/usr/bin/codex"}, {Name: "parent_exe", Value: "/usr/bin/bash"}},
		"":       nil,
	} {
		if got := history.Client(facts); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
