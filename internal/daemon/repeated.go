package daemon

import (
	"log/slog"
	"sync"
	"time"
)

// repeated logs a failure that occurs often for one cause, such as a full disk: the first one
// at once, and then one every repeatedTime with the number of those between.
type repeated struct {
	mu   sync.Mutex
	last time.Time // of the last line; zero: there is none
	left int       // failures since then
}

// repeatedTime is the time between two log lines about the same failure.
const repeatedTime = 5 * time.Minute

func (r *repeated) warn(log *slog.Logger, text string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < repeatedTime {
		r.left++
		return
	}
	log.Warn(text, "since_then", r.left, "err", err)
	r.last, r.left = now, 0
}
