package doortest

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBecomesEndsSoonAfterTheConditionOrTheLimit: within 100 ms.
func TestBecomesEndsSoonAfterTheConditionOrTheLimit(t *testing.T) {
	t.Parallel()
	for limit, at := range map[time.Duration]time.Duration{0: 0, -1: time.Second, time.Minute: 10 * time.Second, 20 * time.Second: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			is := Becomes(limit, func() bool { return time.Since(begun) >= at })
			due := max(min(limit, at), 0)
			if took := time.Since(begun); is != (at <= limit) || took < due || took > due+100*time.Millisecond {
				t.Errorf("limit %s, true after %s: %v after %s", limit, at, is, took)
			}
		})
	}
}
