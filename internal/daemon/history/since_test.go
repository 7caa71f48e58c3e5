package history

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// clocked makes a log with a decision at each of the times, the oldest first.
func clocked(t *testing.T, times ...time.Time) (dir string) {
	t.Helper()
	var now time.Time
	dir = t.TempDir()
	log, err := audit.Open(dir, audit.Options{SegmentBytes: 1 << 16, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	who := principal.New("uid:1000")
	for i, at := range times {
		now = at
		if _, err := log.Append(&audit.Record{Kind: audit.Decision, Source: "gate", Who: who, Action: "tools/call", Resource: fmt.Sprint("notes/t", i), Decision: audit.Allow, Rule: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestASearchSinceATimeReadsOnlyThatTime: whatever else a filter selects, also if it selects
// nothing, the search reads the records since From and at most strayLines more.
func TestASearchSinceATimeReadsOnlyThatTime(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var times []time.Time
	for i := range 4 * strayLines {
		times = append(times, begin.Add(time.Duration(i)*time.Second))
	}
	dir := clocked(t, times...)
	for name, f := range map[string]Filter{
		"all":                {},
		"denied":             {Outcome: "denied"},
		"failed":             {Outcome: "error"},
		"of a server":        {Server: "other"},
		"of an odd server":   {Server: "o\"ther"},
		"of a session":       {Session: "5f0c1d9a3b7e2468"},
		"of a client":        {Client: "other"},
		"of a tool":          {Tool: "other"},
		"by a rule":          {Rule: "other"},
		"denied of a server": {Outcome: "denied", Server: "other"},
	} {
		f.From, f.Lines = times[len(times)-20], 1<<30
		s := newSearching(f, 0, 1<<20)
		if err := s.read(context.Background(), dir, math.MaxUint64); err != nil {
			t.Fatal(err)
		}
		if read := f.Lines - s.lines; read > strayLines+25 {
			t.Errorf("%s: %d lines were read", name, read)
		}
	}
}

// TestAClockThatWasBehindHidesNoActs: records with a time that is too early do not end a
// search for those in front of them.
func TestAClockThatWasBehindHidesNoActs(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var times []time.Time
	for i := range 60 {
		times = append(times, from.Add(time.Duration(i)*time.Second))
		for range 1 + i*7 {
			times = append(times, from.Add(-time.Hour))
		}
	}
	found, err := Search(context.Background(), clocked(t, times...), Filter{From: from, Lines: 1 << 30}, 0, 1<<20)
	if err != nil || len(found.Entries) != 60 {
		t.Errorf("%d acts, %v", len(found.Entries), err)
	}
}
