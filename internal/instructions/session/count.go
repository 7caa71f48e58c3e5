package session

import (
	"maps"
	"sync"
)

// Stats are counts since Open, for metrics.
type Stats struct {
	Issued   int64            // sessions; renewals are not among them
	Renewed  int64            // tokens that took the place of another
	Ended    map[string]int64 // sessions, by why
	Failures map[string]int64 // tokens refused, by why
	Live     int              // sessions now
}

// counters count for Stats.
type counters struct {
	mu sync.Mutex
	s  Stats
}

func (c *counters) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s.Ended == nil {
		c.s.Ended, c.s.Failures = make(map[string]int64), make(map[string]int64)
	}
	f(&c.s)
}

func (c *counters) ended(reason string)  { c.add(func(s *Stats) { s.Ended[reason]++ }) }
func (c *counters) failed(reason string) { c.add(func(s *Stats) { s.Failures[reason]++ }) }

// Stats returns the counts.
func (k *Keeper) Stats() Stats {
	k.mu.RLock()
	live := k.alive
	k.mu.RUnlock()
	var out Stats
	k.count.add(func(s *Stats) {
		out = *s
		out.Ended, out.Failures = maps.Clone(s.Ended), maps.Clone(s.Failures)
	})
	out.Live = live
	return out
}
