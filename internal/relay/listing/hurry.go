package listing

import (
	"context"
	"sync"
	"time"
)

// graceTime is how long a list that is late waits for others after the first server that
// it can show: those that started with it are about to answer.
const graceTime = 100 * time.Millisecond

// Hurry ends the waiting of a list for its slow servers, for a client that does not wait
// itself: once LateTime is over and there is something to show. A nil Hurry ends nothing.
type Hurry struct {
	mu          sync.Mutex
	late, shows bool
	end         context.CancelCauseFunc
	timer       *time.Timer
}

// NewHurry begins the LateTime. shows tells that there is something to show without an
// answer of a server. The context ends as one whose time is over; Stop frees it.
func NewHurry(ctx context.Context, shows bool) (context.Context, *Hurry) {
	h := &Hurry{shows: shows}
	ctx, h.end = context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(LateTime, h.over)
	return ctx, h
}

// over ends the waiting, or leaves that to the first server that has something to show.
func (h *Hurry) over() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.late = true; h.shows {
		h.end(context.DeadlineExceeded)
	}
}

// Shows notes that a server has answered with something to show.
func (h *Hurry) Shows() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.late && !h.shows {
		h.timer.Reset(graceTime)
	}
	h.shows = true
}

// Stop ends the context.
func (h *Hurry) Stop() {
	if h != nil {
		h.timer.Stop()
		h.end(nil)
	}
}
