package deliver

import (
	"sync"
	"time"
)

// pace bounds how often each principal may do something: a number of times in any span of
// a length.
type pace struct {
	mu   sync.Mutex
	done map[string][]time.Time // by principal, oldest first; within the span
}

// take charges one act, or returns how long to wait for the next.
func (p *pace) take(name string, now time.Time, most int, span time.Duration) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(map[string][]time.Time)
	}
	p.sweep(now.Add(-span))
	done := p.done[name]
	if len(done) >= most {
		return done[0].Add(span).Sub(now)
	}
	p.done[name] = append(done, now)
	return 0
}

// sweep removes acts at or before from. The map stays small: each of its principals made
// a session within the span.
func (p *pace) sweep(from time.Time) {
	for name, done := range p.done {
		for len(done) > 0 && !done[0].After(from) {
			done = done[1:]
		}
		if p.done[name] = done; len(done) == 0 {
			delete(p.done, name)
		}
	}
}

// The number of sessions that a principal may make in a span.
const (
	sessionsMost = 10
	sessionsSpan = time.Minute
)
