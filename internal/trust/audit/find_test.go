package audit_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// TestEveryRecordIsFoundByItsNumber: with its caller, in every segment, and no other number is.
func TestEveryRecordIsFoundByItsNumber(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{SegmentBytes: 300 << 10})
	for i := range 2500 {
		mustAppend(t, l, decision(strings.Repeat("x", i%400)))
	}
	lines, err := auditlog.Tail(dir, 1<<20)
	if err != nil || len(segmentNames(t, dir)) < 4 {
		t.Fatal(len(lines), segmentNames(t, dir), err)
	}
	for i, want := range lines {
		got, err := auditlog.Find(dir, uint64(i+1))
		if err != nil || string(got) != string(want) {
			t.Fatalf("record %d: %v %s", i+1, err, cmp.Diff(string(want), string(got)))
		}
	}
	for _, seq := range []uint64{0, uint64(len(lines) + 1), math.MaxUint64} {
		if got, err := auditlog.Find(dir, seq); got != nil || err != nil {
			t.Errorf("record %d: %q, %v", seq, got, err)
		}
	}
	if _, err := auditlog.Find(dir+"-other", 1); err == nil {
		t.Error("a record is found without a log")
	}
}
