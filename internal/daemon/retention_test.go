package daemon

import (
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Records older than audit.retain.days are removed in whole segments, and a segment
// that began long ago is closed, so that it can be removed later.
func TestOldRecordsGoByThemselves(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	c, problems := config.Load("", config.Options{})
	if c == nil {
		t.Fatal(problems)
	}
	key, err := auditkey.LoadOrCreate(filepath.Join(state, "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	dir := AuditDir(state, c)
	begin := time.Now().AddDate(0, 0, -200)
	var reads atomic.Int64
	l, err := audit.Open(dir, audit.Options{Key: key, SegmentBytes: 4000, Now: func() time.Time { return begin.Add(time.Duration(reads.Add(1)) * 12 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if _, err := l.Append(&audit.Record{Kind: audit.Event, Source: "test", Action: "act"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, end, err := OpenPruning(t.Context(), Options{Config: c, StateDir: state, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	before, _, _ := audit.Segments(dir, nil)
	if err := p.d.retention.keep(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if after, _, _ := audit.Segments(dir, nil); !slices.Equal(after, before) {
		t.Errorf("without a clock that can be trusted %v became %v", before, after)
	}
	if err := p.d.retention.keep(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if after, _, _ := audit.Segments(dir, nil); after[len(after)-1] != before[len(before)-1]+1 {
		t.Errorf("the segment that began days ago is still written to: %v", after)
	}
	end()
	r, err := auditlog.Verify(dir, key.Verifier)
	if err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	all, err := auditlog.Tail(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	first, err := time.Parse(time.RFC3339Nano, string(all[0][len(`{"seq":100,"time":"`):][:27]))
	if age := time.Since(first).Hours() / 24; err != nil || r.Begins < 100 || age < 85 || age > 100 {
		t.Errorf("it begins with %d, %.0f days ago (%v): %s", r.Begins, age, err, all[0])
	}
	kept, err := KeptMarks(t.Context(), Options{Config: c, StateDir: state, Log: slog.New(slog.DiscardHandler)})
	if err != nil || len(kept) == 0 {
		t.Fatalf("%v %v", kept, err)
	}
	if r, err := auditlog.Verify(dir, key.Verifier, kept...); err != nil || !r.OK {
		t.Errorf("against the database: %+v %v", r, err)
	}
}

func TestSegmentsAreSmallEnoughForTheBound(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]int64{0: 16 << 20, 1: 64 << 10, 1 << 20: 256 << 10, 1 << 40: 16 << 20} {
		if got := segmentBytes(config.Retain{Bytes: bytes}); got != want {
			t.Errorf("%d bytes in segments of %d, want %d", bytes, got, want)
		}
	}
	for days, want := range map[int]time.Duration{90: 72 * time.Hour, 1: time.Hour, 30: 24 * time.Hour} {
		if got := segmentAge(config.Retain{Days: days}); got != want {
			t.Errorf("%d days in segments of %v, want %v", days, got, want)
		}
	}
}
