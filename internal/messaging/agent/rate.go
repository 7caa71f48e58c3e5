package agent

import (
	"maps"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
)

// pace is a generic cell rate limiter for one key.
type pace struct {
	due time.Duration // when the last admitted act would have been due at a steady rate
}

// admit admits an act at a rate of perMinute, with at most burst at once, or returns how
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

// pacing selects the limiter of a verb.
type pacing uint8

const (
	unpaced         pacing = iota
	paceOfSends            // of the peer, by its name: a new session keeps the charges
	paceOfRegisters        // of the principal: wide enough for all its agents at once
)

// paces holds the limiters of agents and principals. It shares the lock of the sessions,
// because a session that gets a name takes its charges along.
type paces struct {
	mu    *sync.RWMutex
	clock func() time.Duration
	of    map[string]pace // by key; a key without charges has none
}

// admit charges one act to a key.
func (t *paces) admit(key string, perMinute, burst int) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of[key]
	wait = p.admit(t.clock(), perMinute, burst)
	t.of[key] = p
	return wait
}

// rename attaches a session to a name, or to none, and so to the rate of the name.
// Earlier charges of the session go to the name. So neither another name nor another
// session gives a new allowance, and a superseded session does not charge its successor.
// The caller holds mu.
func (t *paces) rename(s *session, name string) {
	before := t.of[s.paceKey()]
	s.name = name
	if now := t.of[s.paceKey()]; before.due > now.due {
		t.of[s.paceKey()] = before
	}
}

// forget removes limiters without charges. The caller holds mu.
func (t *paces) forget() {
	now := t.clock()
	maps.DeleteFunc(t.of, func(_ string, p pace) bool { return p.due <= now })
}

// stopped counts the calls that a limiter has refused: one record for each principal,
// action and minute, with their number.
type stopped struct {
	write func(*audit.Record) error

	mu     sync.Mutex
	counts map[string]*audit.Record // by principal, action and code
	since  map[string]time.Time
}

// sumTime is the period that one record covers.
const sumTime = time.Minute

func newStopped(write func(*audit.Record) error) *stopped {
	return &stopped{write: write, counts: make(map[string]*audit.Record), since: make(map[string]time.Time)}
}

// count adds a call. The record is written when its minute is over.
func (st *stopped) count(p gate.Pass, code string, now time.Time) {
	a, line := p.Act(), p.Line(audit.Field{Name: "code", Value: code})
	key := a.Who.Name() + "\x00" + a.Action + "\x00" + code
	st.mu.Lock()
	defer st.mu.Unlock()
	r := st.counts[key]
	if r == nil {
		r = line
		r.Decision, r.Rule, r.Bytes = audit.Deny, rulePrefix+code, 0
		st.counts[key], st.since[key] = r, now
	}
	r.Count++
}

// flush writes the summaries that are a minute old, or all. A summary that cannot be
// written waits for the next flush.
func (st *stopped) flush(now time.Time, all bool) {
	st.mu.Lock()
	due := make(map[string]*audit.Record)
	for key, r := range st.counts {
		if all || now.Sub(st.since[key]) >= sumTime {
			due[key] = r
			delete(st.counts, key)
			delete(st.since, key)
		}
	}
	st.mu.Unlock()
	for key, r := range due {
		if err := st.write(r); err != nil {
			st.again(key, r)
		}
	}
}

// again puts back a record that could not be written, together with the calls counted
// since.
func (st *stopped) again(key string, r *audit.Record) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if since := st.counts[key]; since != nil {
		since.Count += r.Count
		return
	}
	st.counts[key], st.since[key] = r, time.Time{}
}
