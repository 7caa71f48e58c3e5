package main

import (
	"testing"
	"time"
)

// A lifetime is a duration of package time or a whole number of days.
func TestLifetime(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30d": 30 * day, "0d": 0, "-1d": -day, "36500d": 36500 * day,
		"720h": 30 * day, "1h30m": 90 * time.Minute, "-1h": -time.Hour,
	} {
		var l lifetime
		if err := l.Set(text); err != nil || time.Duration(l) != want {
			t.Errorf("%s: %v, %v, want %v", text, time.Duration(l), err, want)
		}
	}
	for _, text := range []string{"", "d", "30", "1.5d", "1h30d", "36501d", "-36501d", "9999999999999d", "876001h", "30 d", "x"} {
		l := lifetime(time.Minute)
		if err := l.Set(text); err == nil || l != lifetime(time.Minute) {
			t.Errorf("%q: %v, %v, want an error and the value unchanged", text, time.Duration(l), err)
		}
	}
}
