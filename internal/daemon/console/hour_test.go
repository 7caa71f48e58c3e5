package console

import (
	"context"
	"reflect"
	"testing"
	"time"
)

// cutShort is a context that is cancelled when it is asked for the n-th time.
type cutShort struct {
	context.Context
	n int
}

func (c *cutShort) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// atOnce is the hour as read by a console that has not read anything yet.
func atOnce(t *testing.T, log *actLog, c *clock) summary {
	t.Helper()
	s, err := newHour(log.dir, c.now).read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTheHourIsTheSameHoweverOftenItIsRead: while acts of several programs come for hours, each
// reading gives what reading all at once gives, and the programs have the acts of the chart.
func TestTheHourIsTheSameHoweverOftenItIsRead(t *testing.T) {
	t.Parallel()
	c := newClock()
	log := newActLog(t, c)
	h := newHour(log.dir, c.now)
	for i := range 40 {
		log.add(i%3, "claude", "ok")
		log.add(1, "codex", []string{"ok", "denied", "error"}[i%3])
		c.pass(time.Duration(i%5) * 3 * time.Minute)
		s, err := h.read(context.Background())
		if want := atOnce(t, log, c); err != nil || !reflect.DeepEqual(s, want) {
			t.Fatalf("reading %d: %+v, %v, want %+v", i, s, err, want)
		}
		calls, refused := 0, 0
		for _, p := range s.Clients {
			calls, refused = calls+p.Calls, refused+p.Refused
		}
		if calls != s.Calls || refused != s.Refused || s.Calls > 60 {
			t.Errorf("reading %d: the programs have %d and %d acts, the chart %d and %d", i, calls, refused, s.Calls, s.Refused)
		}
	}
}

// TestACancelledReadingCountsNothing: wherever it is cancelled, the next one counts each act once.
func TestACancelledReadingCountsNothing(t *testing.T) {
	t.Parallel()
	c := newClock()
	log := newActLog(t, c)
	log.add(4_000, "codex", "ok")
	want, cancelled := atOnce(t, log, c), 0
	for n := range 6 {
		h := newHour(log.dir, c.now)
		if _, err := h.read(&cutShort{context.Background(), n}); err != nil {
			cancelled++
		}
		if s, err := h.read(context.Background()); err != nil || !reflect.DeepEqual(s, want) {
			t.Errorf("after %d looks: %d calls, %v, want %d", n, s.Calls, err, want.Calls)
		}
	}
	if cancelled < 3 {
		t.Errorf("only %d readings were cancelled", cancelled)
	}
}

// TestTheHourSaysThatItIsIncomplete: exactly while records of the hour were left out.
func TestTheHourSaysThatItIsIncomplete(t *testing.T) {
	t.Parallel()
	c := newClock()
	log := newActLog(t, c)
	h := newHour(log.dir, c.now)
	incomplete := func() bool {
		t.Helper()
		s, err := h.read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return s.Incomplete
	}
	log.add(100, "codex", "ok")
	if incomplete() {
		t.Error("a small log is incomplete")
	}
	log.add(maxHour/2+100, "codex", "ok")
	c.pass(time.Minute)
	for range 2 {
		if log.add(1, "codex", "ok"); !incomplete() {
			t.Error("records were left out, and it does not say so")
		}
	}
	if c.pass(time.Hour); incomplete() {
		t.Error("what was left out is more than an hour old")
	}
}
