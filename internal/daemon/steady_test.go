package daemon

import (
	"testing"
	"time"
)

// TestAJumpOfTheClockIsNoticedOnce shows that only a wall clock which gains more than an hour on
// the monotonic one counts as a jump, as the start does, and that the time after it counts as even.
func TestAJumpOfTheClockIsNoticedOnce(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s steady
	for i, c := range []struct {
		mono, wall time.Duration
		want       bool
	}{
		{0, 0, true}, // the start
		{time.Hour, time.Hour, false},
		{2 * time.Hour, 3 * time.Hour, false}, // the wall clock gained an hour and no more
		{3 * time.Hour, 1000 * time.Hour, true},
		{4 * time.Hour, 1001 * time.Hour, false},
		{5 * time.Hour, 5 * time.Hour, false}, // corrected
		{6 * time.Hour, 16 * time.Hour, true}, // the end of a suspension
		{7 * time.Hour, 17 * time.Hour, false},
	} {
		if got := s.jumped(c.mono, start.Add(c.wall)); got != c.want {
			t.Errorf("check %d: %v, want %v", i, got, c.want)
		}
	}
}
