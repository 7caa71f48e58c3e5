package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// by is a record of one of several callers, with facts as a connection has them.
func by(n int) *audit.Record {
	r := decision(fmt.Sprintf("srv/tool_%d", n))
	r.Session = fmt.Sprintf("%016x", n)
	r.Who = principal.New(fmt.Sprintf("uid:%d", n), principal.Fact{Name: "exe", Value: fmt.Sprintf("/usr/bin/a\"] ,\"as\":%d", n), Grade: principal.Observed},
		principal.Fact{Name: "pid", Value: fmt.Sprint(n), Grade: principal.Attested})
	return r
}

// checkCaller fails unless a line has the caller whose number its resource names.
func checkCaller(t *testing.T, line []byte) {
	t.Helper()
	e := parse(t, line)
	if e.Source != "gate" {
		return
	}
	var n int
	if _, err := fmt.Sscanf(e.Resource, "srv/tool_%d", &n); err != nil {
		t.Fatal(err)
	}
	if e.As != 0 || e.Principal != fmt.Sprintf("uid:%d", n) || e.Session != fmt.Sprintf("%016x", n) || len(e.Facts) != 2 || e.Facts[0].Value != fmt.Sprintf("/usr/bin/a\"] ,\"as\":%d", n) {
		t.Fatalf("not the caller %d: %s", n, line)
	}
}

// The facts of a caller are written once in a segment and shown with each of its
// records, by Show, Tail, Backwards and Follow. The chain is that of the written lines.
func TestACallerIsRecordedOnceInASegment(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	random := rand.New(rand.NewPCG(1, 2))
	const records, people = 6000, 40
	o := audit.Options{Key: key, SegmentBytes: 300 << 10}
	l := open(t, dir, o)
	for i := range records {
		if i == records/2 {
			mustClose(t, l)
			l = open(t, dir, o)
		}
		if r := by(random.IntN(people)); i%3 == 0 {
			mustAppend(t, l, r)
		} else {
			l.Later(r)
		}
	}
	mustClose(t, l)
	mustVerify(t, dir, key, records+4)
	names := segmentNames(t, dir)
	full := 0
	for _, line := range lines(t, dir) {
		if bytes.Contains(line, []byte(`"facts":[`)) {
			full++
		}
	}
	if most := (len(names) + 1) * people; len(names) < 4 || full > most {
		t.Errorf("%d full records in %d segments", full, len(names))
	}

	all := shown(t, dir)
	for _, line := range all {
		checkCaller(t, line)
	}
	tail, err := auditlog.Tail(dir, records+4)
	if err != nil || !bytes.Equal(bytes.Join(tail, nil), bytes.Join(all, nil)) {
		t.Errorf("the tail shows something else: %d, %v", len(tail), err)
	}
	i := len(all)
	for line, err := range auditlog.Backwards(t.Context(), dir) {
		if i--; err != nil || !bytes.Equal(line, all[i]) {
			t.Fatalf("backwards, record %d: %s, %v", i+1, line, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	next := 3001
	_ = auditlog.Follow(ctx, dir, uint64(next), func(line []byte) error {
		if !bytes.Equal(line, all[next-1]) {
			t.Errorf("following, record %d: %s", next, line)
		}
		if next++; next > len(all) {
			stop()
		}
		return nil
	})
	if next <= len(all) {
		t.Errorf("following ended before record %d", next)
	}
}

// Records show their callers after a prune: a segment does not need those before it.
func TestCallersAreKnownBehindAPrune(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 20_000})
	for i := range 300 {
		mustAppend(t, l, by(i%5))
	}
	mustCut(t, l, 2)
	removeAll(t, dir)
	mustAppend(t, l, by(1))
	mustClose(t, l)
	for line, err := range auditlog.Backwards(t.Context(), dir) {
		if err != nil {
			t.Fatal(err)
		}
		checkCaller(t, line)
	}
}

// BenchmarkRecordsOfACall reports the bytes of the two records of a call.
func BenchmarkRecordsOfACall(b *testing.B) {
	dir := b.TempDir()
	l := open(b, dir, audit.Options{})
	d := by(7)
	d.Rule, d.Bytes = "default.loopback", 120
	for b.Loop() {
		ref := mustAppend(b, l, d)
		o := by(7)
		o.Kind, o.Decision, o.Rule, o.Result, o.Bytes, o.Ref = audit.Outcome, "", "", "ok", 80, ref
		l.Later(o)
	}
	mustClose(b, l)
	n := 0
	for _, line := range lines(b, dir) {
		n += len(line) + 1
	}
	b.ReportMetric(float64(n)/float64(b.N), "B/call")
}
