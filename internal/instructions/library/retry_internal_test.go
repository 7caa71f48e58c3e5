package library

import (
	"net/http"
	"testing"
	"time"
)

// Every Retry-After leads to a wait within fixed bounds, or to none where it cannot be
// read.
func TestRetryAfterIsObeyedWithinBounds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"1": waitLeast, "0": waitLeast, "": 0, "3": 3 * time.Second, " 3 ": 3 * time.Second, "0003": 3 * time.Second, "86400": waitMost, "99999999999999999999999": waitMost,
		"00000000000000000000000": waitLeast, "-1": 0, "+5": 0, "1.5": 0, "soon": 0, "0x10": 0, "1e9": 0, "٣": 0,
		now.Add(5 * time.Second).Format(http.TimeFormat): 5 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): waitLeast,
		now.AddDate(900, 0, 0).Format(http.TimeFormat): waitMost, "Wed, 99 Foo 2026 00:00:00 GMT": 0,
	} {
		got, ok := retryAfter(value, now)
		if got != want || ok != (want > 0) {
			t.Errorf("%q: %s, %v; want %s", value, got, ok, want)
		}
	}
}

// A refresh does not wait beyond its end, and all its requests wait together.
func TestTheWaitsOfARefreshAreBounded(t *testing.T) {
	t.Parallel()
	p := &patience{end: time.Now().Add(5 * time.Second)}
	if p.later(waitMost) {
		t.Error("it waits beyond its end")
	}
	began := time.Now()
	if !p.later(waitLeast) {
		t.Fatal("it does not wait")
	}
	if err := p.with(t.Context(), func() error { return nil }); err != nil || time.Since(began) < waitLeast {
		t.Errorf("another request went on after %s: %v", time.Since(began), err)
	}
	for _, early := range []*busyAnswer{{503, 0}, {429, waitMost}} {
		asked := 0
		if err := p.with(t.Context(), func() error { asked++; return early }); err != error(early) || asked != 1 {
			t.Errorf("%v after %d requests", err, asked)
		}
	}
}
