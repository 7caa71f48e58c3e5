package daemon

import (
	"math"
	"testing"
)

// An idle daemon that has returned memory after its last act does so once more when its
// connections rest, and not again.
func TestMemoryIsReturnedOnceMoreAtRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trimmed bool
		ticks   int
		again   bool
	}{
		"before the rest":      {true, atRest - 1, false},
		"at rest":              {true, atRest, true},
		"after the rest":       {true, atRest + 1, false},
		"nothing was worth it": {false, atRest, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPacer(func() uint64 { return 7 }, none)
			p.last, p.started, p.trimmed, p.quiet = 7, true, c.trimmed, c.ticks-1
			p.kept = math.MaxUint64 // becomes the dead memory of the moment, so no more of it is worth a return
			if p.pace(); (p.wait == betweenTrims) != c.again {
				t.Errorf("returned: %v, want %v", !c.again, c.again)
			}
		})
	}
}

// After an act the daemon is not idle, and a return before it no longer counts.
func TestWorkEndsTheIdleTime(t *testing.T) {
	t.Parallel()
	p := newPacer(func() uint64 { return 8 }, none)
	p.last, p.started, p.trimmed, p.quiet = 7, true, true, atRest-1
	if p.pace(); p.quiet != 0 || p.trimmed || p.wait != 0 {
		t.Errorf("quiet for %d ticks, returned: %v, waits for %d", p.quiet, p.trimmed, p.wait)
	}
}

func none() int { return 0 }

// An idle daemon returns memory once when many connections have ended since the last return.
func TestMemoryIsReturnedWhenManyHaveLeft(t *testing.T) {
	t.Parallel()
	open := 500
	p := newPacer(func() uint64 { return 7 }, func() int { return open })
	p.last, p.started, p.quiet = 7, true, atRest+1
	p.kept = math.MaxUint64 // as above
	for _, c := range []struct {
		open  int
		again bool
	}{{500, false}, {500 - manyLeft + 1, false}, {500 - manyLeft, true}, {500 - manyLeft, false}, {500, false}, {10, true}} {
		p.wait, p.kept, open = 0, math.MaxUint64, c.open
		if p.pace(); (p.wait == betweenTrims) != c.again {
			t.Errorf("%d connections: returned: %v, want %v", c.open, !c.again, c.again)
		}
	}
}

// The pages of the program that an idle daemon has used since their release are released again,
// after a while.
func TestPagesOfTheProgramAreReleasedAfterAWhile(t *testing.T) {
	t.Parallel()
	for ticks, again := range map[int]bool{1: false, betweenTrims - 1: false, betweenTrims: true, betweenTrims + 1: false, 3 * betweenTrims: true} {
		p := newPacer(func() uint64 { return 7 }, none)
		p.last, p.started, p.quiet = 7, true, ticks-1
		p.kept, p.mapped = math.MaxUint64, -worthUnmapping-1 // all pages are more than were kept
		if p.pace(); (p.mapped >= 0) != again {
			t.Errorf("after %d idle seconds: released: %v, want %v", ticks, !again, again)
		}
		p.quiet, p.mapped = ticks-1, math.MaxInt-worthUnmapping
		if p.pace(); p.mapped != math.MaxInt-worthUnmapping {
			t.Errorf("after %d idle seconds: few pages were released", ticks)
		}
	}
}
