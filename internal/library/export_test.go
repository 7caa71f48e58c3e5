package library

import "time"

// OnPass has f called at each look into the directory: a file system that hangs
// is one whose looks do not come back.
func (o *Options) OnPass(f func()) { o.testingOnlyPass = f }

// Hold makes n the number of deliveries that may wait, and d the time between
// two writes of them.
func (o *Options) Hold(n int, d time.Duration) { o.testingOnlyMost, o.testingOnlyTend = n, d }

// Keep makes n the number of deliveries that the database keeps.
func (o *Options) Keep(n int) { o.testingOnlyRows = n }

// VersionsKept is how many versions of a name are kept.
const VersionsKept = versionsKept

// Waiting is how many kinds of deliveries wait to be written.
func (l *Library) Waiting() int {
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	return len(l.ledger.pending)
}
