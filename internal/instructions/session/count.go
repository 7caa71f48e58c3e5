package session

import (
	"maps"
	"sync"
)

// Stats are counts since Open, for metrics.
type Stats struct {
	Issued   int64            // new sessions, without renewals
	Renewed  int64            // tokens that replaced another
	Ended    map[string]int64 // sessions, by reason
	Failures map[string]int64 // refused tokens, by reason
	Live     int              // live sessions
}

// counters holds the counts of Stats.
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
