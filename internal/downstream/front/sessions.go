package front

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// The limits that the front enforces, by their names in records.
const (
	RuleSessions     = "limits.sessions"
	RulePerPrincipal = "limits.sessions_per_principal"
	RuleCalls        = "limits.calls_per_principal"
)

// sessions is the table of live sessions. A look-up needs the id, the principal and the
// route, and the answer is the same whichever of them does not match.
type sessions struct {
	limit int
	each  func(*principal.Principal) int
	idle  time.Duration
	now   func() time.Time

	mu     sync.RWMutex
	byID   map[string]*Session
	counts map[string]int // by principal
	open   int
	closed bool
}

func newSessions(limit int, each func(*principal.Principal) int, idle time.Duration) *sessions {
	return &sessions{limit: limit, each: each, idle: idle, now: time.Now,
		byID: make(map[string]*Session), counts: make(map[string]int)}
}

// reserve counts a session that is about to open. rule is the limit that is exhausted; empty:
// none. The longest idle session of the same principal is ended to make room.
func (t *sessions) reserve(who *principal.Principal) (rule string) {
	for rule = t.take(who); rule != ""; rule = t.take(who) {
		old := t.longestIdle(who)
		if old == nil {
			return rule
		}
		t.remove(old)
	}
	return ""
}

// leftAfter is how long a session must have been idle to be ended for another one. It is long
// enough to exclude clients that only wait for their model.
const leftAfter = time.Minute

// longestIdle returns the session of a principal that has been idle for the longest time;
// nil: none is idle.
func (t *sessions) longestIdle(who *principal.Principal) (oldest *Session) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	least := t.now().Add(-leftAfter)
	for _, s := range t.byID {
		if s.Who.Name() != who.Name() {
			continue
		}
		if since, idle := s.IdleSince(); idle && since.Before(least) {
			oldest, least = s, since
		}
	}
	return oldest
}

// take counts a session, or returns the exhausted limit.
func (t *sessions) take(who *principal.Principal) (rule string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.counts[who.Name()] >= t.each(who):
		return RulePerPrincipal
	case t.closed || t.open >= t.limit:
		return RuleSessions
	}
	t.open++
	t.counts[who.Name()]++
	return ""
}

func (t *sessions) release(who *principal.Principal) {
	t.mu.Lock()
	t.open--
	if t.counts[who.Name()]--; t.counts[who.Name()] == 0 {
		delete(t.counts, who.Name())
	}
	t.mu.Unlock()
}

// publish makes a reserved session reachable.
func (t *sessions) publish(s *Session) {
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.byID[s.id] = s
	}
	t.mu.Unlock()
	if closed {
		s.close()
	}
}

// find returns the session of an id. It returns nil if the id is malformed, unknown or ended,
// if the session has another principal, route or transport, and if the program that it was
// issued to is gone. The program is checked last, because the check takes time that only the
// owner may observe.
func (t *sessions) find(id string, who *principal.Principal, server string, over transport) *Session {
	if !wellFormedID(id) {
		return nil
	}
	t.mu.RLock()
	s := t.byID[id]
	t.mu.RUnlock()
	if s == nil || s.ctx.Err() != nil || s.transport != over || s.Server != server || s.Who.Key() != who.Key() || !s.holds() {
		return nil
	}
	s.seen.Store(t.now().UnixNano())
	s.usedBy(who)
	return s
}

// has reports whether there is a session of this run with that id, of any principal.
func (t *sessions) has(id string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id] != nil
}

// wellFormedID accepts ^[A-Za-z0-9_-]{8,128}$: every id that is issued here, and no character
// that is special in a header or a path.
func wellFormedID(id string) bool {
	if len(id) < 8 || len(id) > 128 {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// remove ends a session. A second call does nothing. The stored copy is removed before the
// session leaves the table: a request in between would open the session again from the copy.
func (t *sessions) remove(s *Session) {
	if !t.over() {
		s.close() // from now on nothing is stored
		s.place.drop()
	}
	t.mu.Lock()
	known := t.byID[s.id] == s
	if known {
		delete(t.byID, s.id)
	}
	t.mu.Unlock()
	if known {
		t.release(s.Who)
	}
	s.close()
}

// over reports that the daemon is ending: its sessions end, and their stored copies remain.
func (t *sessions) over() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.closed
}

// sweep ends the sessions that, at the time now, were not used for the idle time. An open
// stream counts as use: if its client is gone, a keep-alive fails.
func (t *sessions) sweep(now time.Time) {
	limit := now.Add(-t.idle).UnixNano()
	var old, used []*Session
	t.mu.RLock()
	for _, s := range t.byID {
		if s.seen.Load() < limit && !s.Listening() {
			old = append(old, s)
			continue
		}
		used = append(used, s)
	}
	t.mu.RUnlock()
	for _, s := range used {
		s.place.used(now)
	}
	for _, s := range old {
		t.remove(s)
	}
}

func (t *sessions) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.open
}

// close ends all sessions and prevents new ones.
func (t *sessions) close() {
	t.mu.Lock()
	t.closed = true
	all := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	for _, s := range all {
		t.remove(s)
	}
}
