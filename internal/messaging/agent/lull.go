package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
)

// lulls sums up calls that waited for news, or asked for them, and found none. The
// first of a session has its record before its answer; its equals within a minute are
// one record with their number. A summary that cannot be written makes the next call
// have a record of its own again, so that nobody waits without any.
type lulls struct {
	write func(...*audit.Record) error

	mu     sync.Mutex
	open   map[string]*lull
	closed bool
}

// lull is the calls of one session since its last record of them.
type lull struct {
	line   *audit.Record // of the last one; nil: there was none
	count  int64
	waited int64 // milliseconds, of all
	since  time.Time
	failed bool // the summary could not be written
}

func newLulls(write func(...*audit.Record) error) *lulls {
	return &lulls{write: write, open: make(map[string]*lull)}
}

// counts reports whether a call is summed up with those before it, and counts it then.
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

// begin notes a record of a call, from which on others are counted.
func (l *lulls) begin(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if there := l.open[key]; there != nil {
		there.failed = false
		return
	}
	l.open[key] = &lull{since: now}
}

// flush writes the summaries of the minutes that are over, and forgets the sessions
// that did not ask again. all: it writes all of them, and nothing is summed up any more.
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

// summary is the last call's record, with the number of all.
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
