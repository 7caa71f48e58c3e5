package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
)

// lulls combines the records of calls that found no news. The first call of a session is
// recorded before its answer; its repetitions within a minute become one record with
// their number. If that record cannot be written, the next call is recorded by itself
// again, so that no call goes unrecorded for long.
type lulls struct {
	write func(...*audit.Record) error

	mu     sync.Mutex
	open   map[string]*lull
	closed bool
}

// lull holds the calls of one session since their last record.
type lull struct {
	line   *audit.Record // of the last call; nil: there was none
	count  int64
	waited int64 // milliseconds, of all calls
	since  time.Time
	failed bool // the summary could not be written
}

func newLulls(write func(...*audit.Record) error) *lulls {
	return &lulls{write: write, open: make(map[string]*lull)}
}

// counts reports whether a call is combined with those before it, and if so counts it.
func (l *lulls) counts(key string, waited int64, line func() *audit.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := l.open[key]
	if there == nil || there.failed || l.closed {
		return false
	}
	there.line = line()
	there.count++
	there.waited += waited
	return true
}

// begin notes that a call was recorded by itself; its repetitions are counted from now
// on.
func (l *lulls) begin(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if there := l.open[key]; there != nil {
		there.failed = false
		return
	}
	l.open[key] = &lull{since: now}
}

// flush writes the summaries that are a minute old, and forgets the sessions without
// repetitions. all: it writes all of them, and from then on nothing is combined.
func (l *lulls) flush(now time.Time, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = l.closed || all
	var keys []string
	var due []*audit.Record
	for key, there := range l.open {
		switch {
		case !all && now.Sub(there.since) < sumTime:
		case there.count == 0:
			delete(l.open, key)
		default:
			keys, due = append(keys, key), append(due, there.summary())
		}
	}
	if len(due) == 0 {
		return
	}
	err := l.write(due...)
	for _, key := range keys {
		if err != nil {
			l.open[key].failed = true
			continue
		}
		l.open[key] = &lull{since: now}
	}
}

// summary returns the last call's record, with the number and the waiting time of all.
func (there *lull) summary() *audit.Record {
	r := *there.line
	r.Count, r.Bytes = there.count, 0
	r.Detail = slices.Clone(r.Detail)
	for i, f := range r.Detail {
		if f.Name == "waited_ms" {
			r.Detail[i] = number(f.Name, there.waited)
		}
	}
	return &r
}
