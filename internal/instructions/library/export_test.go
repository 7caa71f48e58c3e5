package library

import "time"

// These change a library before it runs.

// OnLook makes each look into the directory call f first. An f that does not return
// is a file system that hangs.
func (l *Library) OnLook(f func()) {
	sees := l.sees
	l.sees = func(s *scanner) sight { f(); return sees(s) }
}

// Hold makes n the number of deliveries that may wait, and d the time between
// two writes of them.
func (l *Library) Hold(n int, d time.Duration) { l.ledger.most, l.tendEvery = n, d }

// Keep makes n the number of deliveries that the database keeps.
func (l *Library) Keep(n int) { l.ledger.rows = int64(n) }

// VersionsKept is how many versions of a name are kept.
const VersionsKept = versionsKept

// Pruned reports whether the old deliveries were forgotten once, which is a write of its own.
func (l *Library) Pruned() bool {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	return !l.ledger.pruned.IsZero()
}

// Waiting is how many kinds of deliveries wait to be written.
func (l *Library) Waiting() int {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	return len(l.ledger.pending)
}
