package agent

import (
	"sync"
	"time"
)

// alarm is the earliest time at which something has to be done.
type alarm struct {
	mu sync.Mutex
	at time.Time
}

// by brings the alarm forward. One that never rang is due at once, and stays so.
func (a *alarm) by(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.Before(a.at) {
		a.at = t
	}
}

// rung reports that the time has come, and puts the alarm off to next.
func (a *alarm) rung(now, next time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.After(now) {
		return false
	}
	a.at = next
	return true
}
