package content

import (
	"sync"
	"time"
)

// Tally sums up findings outside of calls, so that a talkative server does not fill the
// record: the first of a kind is recorded at once, further ones once in SumTime.
type Tally struct {
	mu   sync.Mutex
	open map[kind]*sum
}

type kind struct{ action, rule, result string }

type sum struct {
	record func(action string, f Finding)
	since  time.Time
	n      int64
}

// SumTime is the period over which findings of one kind are summed up.
const SumTime = time.Minute

// Add records the first finding of its kind with record, and counts further ones.
func (u *Tally) Add(action string, f Finding, record func(action string, f Finding)) {
	key := kind{action, f.Rule, f.Result}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.open[key]; t != nil {
		t.n += f.N
		return
	}
	if u.open == nil {
		u.open = make(map[kind]*sum)
	}
	u.open[key] = &sum{record: record, since: time.Now()}
	record(action, f)
}

// Flush records the sums that began before the given time.
func (u *Tally) Flush(before time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, t := range u.open {
		if t.since.After(before) {
			continue
		}
		delete(u.open, key)
		if t.n > 0 {
			t.record(key.action, Finding{key.rule, key.result, t.n})
		}
	}
}
