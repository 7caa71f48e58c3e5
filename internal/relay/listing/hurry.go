package listing

import (
	"context"
	"sync"
	"time"
)

// graceTime is how long a late list waits for further servers after the first answer that it
// can show: servers that were started at the same time are about to answer.
const graceTime = 100 * time.Millisecond

// Hurry ends the wait of a list for slow servers, for a client that itself does not wait:
// once LateTime is over and there is something to show. A nil Hurry does nothing.
type Hurry struct {
	mu          sync.Mutex
	late, shows bool
	end         context.CancelCauseFunc
	timer       *time.Timer
}

// NewHurry begins the LateTime. shows: there is something to show without any answer. The
// context ends as if its deadline had passed; Stop frees it.
func NewHurry(ctx context.Context, shows bool) (context.Context, *Hurry) {
	h := &Hurry{shows: shows}
	ctx, h.end = context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(LateTime, h.over)
	return ctx, h
}

// over ends the wait, or leaves that to the first server with something to show.
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
