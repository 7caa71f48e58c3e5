package audit

import (
	"testing"
	"time"
)

// TestOnlyWhatWasWrittenWaitsForASync: and a group, or any record with Always, does not wait.
func TestOnlyWhatWasWrittenWaitsForASync(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		always bool
		write  func(l *Log) error
		dirty  bool
	}{
		"a record":             {false, func(l *Log) error { _, err := l.Append(act()); return err }, true},
		"a record with Always": {true, func(l *Log) error { _, err := l.Append(act()); return err }, false},
		"a group":              {false, func(l *Log) error { _, err := l.AppendGroup([]*Record{act()}); return err }, false},
		"a group with Always":  {true, func(l *Log) error { _, err := l.AppendGroup([]*Record{act()}); return err }, false},
		"a group of none":      {false, func(l *Log) error { _, err := l.AppendGroup(nil); return err }, false},
	} {
		l := openLog(t, t.TempDir(), Options{Interval: time.Hour, Always: c.always})
		if err := l.secure(); err != nil {
			t.Fatal(err)
		}
		if err := c.write(l); err != nil || isDirty(l) != c.dirty {
			t.Errorf("%s: %v, waits for a sync %v", name, err, isDirty(l))
		}
	}
}

// TestNoticesCountForTheSizeOfASegment: the events about refused and lost records, which are
// written before a record, do not make a segment too large either.
func TestNoticesCountForTheSizeOfASegment(t *testing.T) {
	t.Parallel()
	write := func(most int64) (number int, size int64) {
		l := openLog(t, t.TempDir(), Options{Interval: time.Hour, SegmentBytes: most})
		l.mu.Lock()
		l.trouble.refused, l.trouble.lost = 1, 1
		l.mu.Unlock()
		if seq, err := l.Append(act()); err != nil || seq != 4 {
			t.Fatalf("record %d, %v", seq, err)
		}
		return l.seg.number, l.seg.size
	}
	_, size := write(1 << 20)
	if number, _ := write(size - 1); number != 2 {
		t.Errorf("the records are in segment %d, which is larger than %d bytes", number, size-1)
	}
	if number, _ := write(size + 3*20); number != 1 {
		t.Errorf("the records are in segment %d, although they fit", number)
	}
}
