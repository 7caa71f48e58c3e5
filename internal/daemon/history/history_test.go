package history

import (
	"context"
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// overlapping makes a log of calls of which up to seven are under way at a time, and returns
// the number of its last record.
func overlapping(t *testing.T, dir string, calls int) uint64 {
	t.Helper()
	log, err := audit.Open(dir, audit.Options{SegmentBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	who := principal.New("uid:1000")
	add := func(r audit.Record) uint64 {
		r.Source, r.Who = "gate", who
		seq, err := log.Append(&r)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	var open []uint64
	for i := range calls {
		open = append(open, add(audit.Record{Kind: audit.Decision, Action: "tools/call", Resource: fmt.Sprint("notes/t", i), Decision: audit.Allow, Rule: "r"}))
		for len(open) > i%7 {
			add(audit.Record{Kind: audit.Outcome, Ref: open[0], Result: "ok", Bytes: int64(i)})
			open = open[1:]
		}
	}
	end := log.State().Seq
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return end
}

// TestAPageShowsWhatTheWholeListShows: a page that begins at any record has the acts and outcomes
// of the whole list, and a search keeps no outcome of an act that it cannot show.
func TestAPageShowsWhatTheWholeListShows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	end := overlapping(t, dir, 60)
	whole, err := Search(context.Background(), dir, Filter{}, 0, 1<<20)
	if err != nil || len(whole.Entries) != 60 {
		t.Fatalf("%d acts, %v", len(whole.Entries), err)
	}
	for before := end; before > 0; before-- {
		for len(whole.Entries) > 0 && whole.Entries[0].Seq >= before {
			whole.Entries = whole.Entries[1:]
		}
		s := newSearching(Filter{}, before, 10)
		err := s.read(context.Background(), dir, end)
		want := whole.Entries[:min(10, len(whole.Entries))]
		if err != nil || fmt.Sprint(s.out.Entries) != fmt.Sprint(want) {
			t.Errorf("before %d: %v, %v, want %v", before, s.out.Entries, err, want)
		}
		for ref := range s.ends {
			if ref >= before {
				t.Fatalf("before %d: the outcome of %d is kept", before, ref)
			}
		}
	}
}
