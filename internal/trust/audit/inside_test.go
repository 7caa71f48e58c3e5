package audit

import (
	"testing"
	"time"
)

func newBody(r *Record, now time.Time) body { return makeBody(nil, r, now) }

func openLog(t *testing.T, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func isDirty(l *Log) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dirty
}
