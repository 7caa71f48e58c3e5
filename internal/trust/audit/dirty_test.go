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
		"nothing": {false, func(l *Log) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.settle(l.next)
		}, false},
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
