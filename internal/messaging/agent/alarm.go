package agent

import (
	"sync"
	"time"
)

// alarm is the next time at which something has to be done.
type alarm struct {
	mu sync.Mutex
	at time.Time
}

// by brings the alarm forward to t. A new alarm is due at once, whatever by sets.
func (a *alarm) by(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.Before(a.at) {
		a.at = t
	}
}

// rung reports whether the alarm is due, and if so sets it to next.
func (a *alarm) rung(now, next time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.After(now) {
		return false
	}
	a.at = next
	return true
}
