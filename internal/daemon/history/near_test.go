package history

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// TestAnEarlyPageReadsNotTheEnd: a page at the beginning of a long log reads the end only where it
// needs it, for an act whose outcome is there.
func TestAnEarlyPageReadsNotTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, err := audit.Open(dir, audit.Options{SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	add := func(r audit.Record) uint64 {
		r.Source, r.Who = "gate", principal.New("uid:1000")
		seq, err := log.Append(&r)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	call := audit.Record{Kind: audit.Decision, Action: "tools/call", Resource: "notes/t", Decision: audit.Allow, Rule: "r"}
	long, short := add(call), add(call)
	add(audit.Record{Kind: audit.Outcome, Ref: short, Result: "ok"})
	for range MaxLines + 5000 {
		add(audit.Record{Kind: audit.Decision, Action: "tools/call", Resource: "notes/t", Decision: audit.Deny, Rule: "r"})
	}
	add(audit.Record{Kind: audit.Outcome, Ref: long, Result: "error"})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if e, err := pageAt(t, dir, Filter{}, long); e != "error" || err != nil {
		t.Errorf("the outcome at the end is %q, %v", e, err)
	}
	if e, err := pageAt(t, dir, Filter{Outcome: "error"}, long); e != "error" || err != nil {
		t.Errorf("selected by its outcome, the outcome at the end is %q, %v", e, err)
	}
	spoilEnd(t, dir)
	if e, err := pageAt(t, dir, Filter{}, long); err == nil {
		t.Errorf("the outcome at the end, which cannot be read, is %q", e)
	}
	if e, err := pageAt(t, dir, Filter{}, short); e != "ok" || err != nil {
		t.Errorf("the outcome at the beginning is %q, %v", e, err)
	}
}

func pageAt(t *testing.T, dir string, f Filter, seq uint64) (outcome string, err error) {
	t.Helper()
	found, err := Search(t.Context(), dir, f, seq+1, 1)
	if err == nil && (len(found.Entries) != 1 || found.Entries[0].Seq != seq) {
		err = fmt.Errorf("found %v", found.Entries)
	}
	if err != nil {
		return "", err
	}
	return found.Entries[0].Outcome, nil
}

// spoilEnd makes reading the last segment an error, except for its first record.
func spoilEnd(t *testing.T, dir string) {
	t.Helper()
	numbers, _, err := audit.Segments(dir, nil)
	if err != nil || len(numbers) < 3 {
		t.Fatal(numbers, err)
	}
	f, err := os.OpenFile(audit.SegmentPath(dir, numbers[len(numbers)-1]), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(bytes.Repeat([]byte("x"), 1<<20), '\n')); err != nil {
		t.Fatal(err)
	}
}
