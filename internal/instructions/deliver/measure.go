package deliver

import (
	"sync"
	"time"

	"github.com/doorward/doorward/internal/upstream/builtin"
)

// Measures are the figures of delivery since the start, for the metrics.
type Measures struct {
	Delivered map[string]uint64 // protected texts, by "session", "template" or "render"
	Degraded  map[string]uint64 // generic texts in place of others, by reason
	Canary    map[string]uint64 // refs found on their way out, by the action taken
	// Latency of deliveries: how many took at most each of Buckets, and their sum.
	Buckets []time.Duration
	Within  []uint64
	Count   uint64
	Sum     time.Duration
}

// buckets are those of the latency.
var buckets = [...]time.Duration{time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

type counts struct {
	texts, degraded, canary builtin.Tally

	mu     sync.Mutex
	within [len(buckets)]uint64
	count  uint64
	sum    time.Duration
}

// delivered counts one delivery and how long it took.
func (c *counts) delivered(o order, d time.Duration) {
	switch {
	case o.max > 0:
		c.texts.Add(nameSession)
	case o.action == actionRender:
		c.texts.Add("render")
	default:
		c.texts.Add("template")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.sum += d
	for i, most := range buckets {
		if d <= most {
			c.within[i]++
		}
	}
}

// Measure reads the figures.
func (s *Server) Measure() Measures {
	c := &s.counts
	m := Measures{Delivered: c.texts.All(), Degraded: c.degraded.All(), Canary: c.canary.All(), Buckets: buckets[:]}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Within = append(m.Within, c.within[:]...)
	m.Count, m.Sum = c.count, c.sum
	return m
}
