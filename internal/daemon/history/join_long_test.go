package history

import (
	"fmt"
	"testing"
)

// TestALongActIsNotForgotten shows that an act waits for its outcome however many other acts
// begin and end meanwhile: only acts that are open count towards mostOpen.
func TestALongActIsNotForgotten(t *testing.T) {
	t.Parallel()
	j := NewJoin(Filter{})
	begin := func(seq int, name string) {
		if _, ok := j.Take(fmt.Appendf(nil, `{"seq":%d,"time":"2026-01-02T03:04:05Z","kind":"decision","source":"gate","action":"tools/call","resource":"notes/%s","decision":"allow"}`, seq, name)); ok {
			t.Fatalf("act %d is over at once", seq)
		}
	}
	end := func(seq, of int) bool {
		_, ok := j.Take(fmt.Appendf(nil, `{"seq":%d,"time":"2026-01-02T03:04:05Z","kind":"outcome","source":"gate","result":"ok","ref":%d}`, seq, of))
		return ok
	}
	begin(1, "slow")
	for i := range 3 * mostOpen {
		begin(2+2*i, "quick")
		if !end(3+2*i, 2+2*i) {
			t.Fatalf("quick act %d has no end", i)
		}
	}
	if !end(10*mostOpen, 1) {
		t.Error("the end of the slow act is not reported")
	}
	for i := range 2 * mostOpen {
		begin(20*mostOpen+i, "never")
	}
	if len(j.open) != mostOpen {
		t.Errorf("%d open acts are kept, want %d", len(j.open), mostOpen)
	}
	if !end(40*mostOpen, 22*mostOpen-1) || end(40*mostOpen+1, 20*mostOpen) {
		t.Error("not the oldest acts were dropped")
	}
}
