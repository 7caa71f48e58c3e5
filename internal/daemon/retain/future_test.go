package retain_test

import (
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/retain"
	"github.com/doorward/doorward/internal/trust/audit"
)

// TestSegmentsFromTheFutureDoNotStopThePrune shows that records which were written while the
// clock was years ahead are removed together with the old records behind them, and that they
// are kept as long as those are.
func TestSegmentsFromTheFutureDoNotStopThePrune(t *testing.T) {
	t.Parallel()
	key, dir := newKey(t), t.TempDir()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := newClock(start, time.Second)
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 4000, Now: now.tick})
	act(t, l, 30)
	now.set(start.AddDate(5, 0, 0))
	act(t, l, 30)
	now.set(start.Add(time.Hour))
	l.Turn()
	act(t, l, 30)
	now.set(start.AddDate(0, 0, 20))
	l.Turn()
	act(t, l, 30)
	must(t, l.Close())
	for what, c := range map[string]struct {
		before time.Time
		old    bool // the records of the first day are removed, those of the future among them
	}{
		"nothing is old":       {start, false},
		"the first day is old": {start.AddDate(0, 0, 10), true},
	} {
		p, err := retain.Bounds{Bytes: -1, Before: c.before, Closed: true}.Plan(dir, start.AddDate(0, 0, 21))
		must(t, err)
		if !c.old {
			if p.Through != 0 {
				t.Errorf("%s: through %d", what, p.Through)
			}
			continue
		}
		if p.Last.Before(start.Add(time.Hour)) || p.Last.After(start.AddDate(0, 0, 1)) || p.Segments != p.Through {
			t.Errorf("%s: the last removed record is of %v, %d segments through %d", what, p.Last, p.Segments, p.Through)
		}
		if records := whole(t, dir, key).Records; p.Records == 0 || p.Records >= records {
			t.Errorf("%s: %d of %d records are removed", what, p.Records, records)
		}
	}
}
