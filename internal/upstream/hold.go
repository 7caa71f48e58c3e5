package upstream

import (
	"sync"
	"time"
)

// maxHeld bounds the open questions of a connection that are noted, with their ids.
const maxHeld = 2 * maxWaiting

// hold stops the clocks of a connection's calls while the server waits for the answer to a
// question, because a person may take longer than a call. A stream does not tell which call
// asked, so all calls of the connection are held.
//
// The owner of the connection limits the time for an answer. A question that does not reach it
// holds no clock.
type hold struct {
	mu    sync.Mutex
	open  map[string]bool // raw ids of questions
	since time.Time       // when the first open question came
	total time.Duration   // of earlier periods
}

func (h *hold) asked(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) == 0 {
		h.since = time.Now()
	}
	if h.open == nil {
		h.open = make(map[string]bool)
	}
	if len(h.open) < maxHeld {
		h.open[id] = true
	}
}

func (h *hold) answered(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open[id] {
		return
	}
	delete(h.open, id)
	if len(h.open) == 0 {
		h.total += time.Since(h.since)
	}
}

// held returns how long the clocks have been stopped since the connection began, and whether
// they are stopped now.
func (h *hold) held() (total time.Duration, now bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) == 0 {
		return h.total, false
	}
	return h.total + time.Since(h.since), true
}

// heldCheck is the interval at which a call whose limit has passed checks whether the
// question has been answered.
const heldCheck = 100 * time.Millisecond

// allowance is the time that one call gets back for questions.
type allowance struct {
	hold *hold
	used time.Duration // part of the hold's total
}

func (h *hold) begin() allowance {
	total, _ := h.held()
	return allowance{h, total}
}

// more returns the time that a call gets beyond its limit, 0 for none.
func (a *allowance) more() time.Duration {
	if a.hold == nil {
		return 0
	}
	total, now := a.hold.held()
	more := total - a.used
	a.used = total
	if now {
		return max(more, heldCheck)
	}
	return more
}
