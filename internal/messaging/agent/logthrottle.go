package agent

import (
	"log/slog"
	"sync"
	"time"
)

// quiet logs the first failure with a code in full, and the number of later ones every
// few minutes, because a cause that fails one call fails all of them.
type quiet struct {
	log *slog.Logger

	mu    sync.Mutex
	since map[string]time.Time // of the last line, by code
	left  map[string]int       // failures since then
}

const quietTime = 5 * time.Minute

func newQuiet(log *slog.Logger) *quiet {
	return &quiet{log: log, since: make(map[string]time.Time), left: make(map[string]int)}
}

func (q *quiet) failed(tool, code string, err error, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last, ok := q.since[code]; ok && now.Sub(last) < quietTime {
		q.left[code]++
		return
	}
	q.log.Error("a call of the agent server failed", "tool", tool, "code", code, "since_then", q.left[code], "err", err)
	q.since[code], q.left[code] = now, 0
}
