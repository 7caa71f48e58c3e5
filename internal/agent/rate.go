package agent

import (
	"sync"
	"time"

	"github.com/doorward/doorward/internal/audit"
	"github.com/doorward/doorward/internal/gate"
)

// pace is how fast a session sends: a generic cell rate limiter.
type pace struct {
	due time.Duration // when the last one would have been due at a steady pace
}

// admit lets one of perMinute and at most burst at once through, or says how
// long to wait.
func (p *pace) admit(now time.Duration, perMinute, burst int) (wait time.Duration) {
	step := time.Minute / time.Duration(perMinute)
	next := max(p.due, now) + step
	if early := next - now - step*time.Duration(burst); early > 0 {
		return early
	}
	p.due = next
	return 0
}

// paced charges a session one send.
func (t *sessions) paced(s *session, perMinute, burst int) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.pace.admit(t.clock(), perMinute, burst)
}

// stopped counts the calls that a limiter has stopped: one record for each
// principal and minute, in which their number stands (AH13).
type stopped struct {
	write func(*audit.Record)

	mu     sync.Mutex
	counts map[string]*audit.Record // by principal and action
	since  map[string]time.Time
}

// sumTime is what one record sums up.
const sumTime = time.Minute

func newStopped(write func(*audit.Record)) *stopped {
	return &stopped{write: write, counts: make(map[string]*audit.Record), since: make(map[string]time.Time)}
}

// count adds a call. The record is written when its minute is over.
func (st *stopped) count(p gate.Pass, code string, now time.Time) {
	a := p.Act()
	key := a.Who.Name() + "\x00" + a.Action + "\x00" + code
	st.mu.Lock()
	defer st.mu.Unlock()
	r := st.counts[key]
	if r == nil {
		r = p.Line(audit.Field{Name: "code", Value: code})
		r.Decision, r.Rule, r.Bytes = audit.Deny, rulePrefix+code, 0
		st.counts[key], st.since[key] = r, now
	}
	r.Count++
}

// flush writes what was begun a minute before now, or all.
func (st *stopped) flush(now time.Time, all bool) {
	st.mu.Lock()
	var due []*audit.Record
	for key, r := range st.counts {
		if all || now.Sub(st.since[key]) >= sumTime {
			due = append(due, r)
			delete(st.counts, key)
			delete(st.since, key)
		}
	}
	st.mu.Unlock()
	for _, r := range due {
		st.write(r)
	}
}
