package front

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// The limits that strike at the door, as records name them.
const (
	RuleSessions     = "limits.sessions"
	RulePerPrincipal = "limits.sessions_per_principal"
	RuleCalls        = "limits.calls_per_principal"
)

// sessions is the table of live sessions. A look-up needs the principal and
// the route as well as the id, and a miss looks the same whatever missed.
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

// reserve counts a session that is about to open; rule is the limit that has
// no room for it, empty when there is. The longest idle session of the same
// principal makes room.
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

// leftAfter is how long a session must have been idle to make room for another: a
// client that left without a word, and none that thinks.
const leftAfter = time.Minute

// longestIdle is the session of a principal to which nothing has happened for the
// longest time; nil when none is idle.
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

// take counts a session unless it finds no room.
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

// find returns the session, or nil: for an id that is malformed, unknown, ended,
// of another principal, another route or another transport, and when the program
// that it was issued to is gone. The program is checked last, because the check
// takes time that only the owner may observe.
func (t *sessions) find(id string, who *principal.Principal, server string, over transport) *Session {
	if !wellFormedID(id) {
		return nil
	}
	t.mu.RLock()
	s := t.byID[id]
	t.mu.RUnlock()
	if s == nil || s.transport != over || s.Server != server || s.Who.Key() != who.Key() || !s.holds() {
		return nil
	}
	s.seen.Store(t.now().UnixNano())
	s.usedBy(who)
	return s
}

// has reports a session of this run, whoever owns it.
func (t *sessions) has(id string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id] != nil
}

// wellFormedID admits ^[A-Za-z0-9_-]{8,128}$: every id that is given out here, and nothing
// that means more than itself in a header or a path.
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

// remove ends a session. Ending it twice is harmless.
func (t *sessions) remove(s *Session) {
	t.mu.Lock()
	_, known := t.byID[s.id]
	delete(t.byID, s.id)
	t.mu.Unlock()
	if known {
		t.release(s.Who)
	}
	s.close()
	if !t.over() {
		s.place.drop()
	}
}

// over reports that the daemon ends: its sessions end, and stay kept.
func (t *sessions) over() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.closed
}

// sweep ends the sessions that were not used for the idle time. An open stream
// counts as use: a client that is gone fails its keep-alive.
func (t *sessions) sweep() {
	now := t.now()
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

// close ends all sessions and admits no more.
func (t *sessions) close() {
	t.mu.Lock()
	t.closed = true
	all := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	for _, s := range all {
		t.remove(s)
	}
}
