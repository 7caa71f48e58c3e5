package upstream

import (
	"log/slog"
	"sync/atomic"
)

// Counts counts the messages of a server that had no receiver, since the daemon started.
type Counts struct {
	Garbage    int64 `json:"garbage"`    // lines or events that are no JSON-RPC message
	Unknown    int64 `json:"unknown"`    // answers to an id that was never issued
	Late       int64 `json:"late"`       // answers to a call that had ended, including second answers
	Stray      int64 `json:"stray"`      // progress and subscription messages for no call in flight
	Violations int64 `json:"violations"` // messages that the era forbids, and invalid JSON-RPC
	Dropped    int64 `json:"dropped"`    // events beyond the bounds of a queue, and messages that are too large
}

type counters struct {
	garbage, unknown, late, stray, violations, dropped atomic.Int64
}

// LogValue returns the counts as attributes.
func (c Counts) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("garbage", c.Garbage), slog.Int64("unknown", c.Unknown), slog.Int64("late", c.Late),
		slog.Int64("stray", c.Stray), slog.Int64("violations", c.Violations), slog.Int64("dropped", c.Dropped))
}
