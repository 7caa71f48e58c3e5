package agent

import (
	"maps"
	"slices"
)

// dead checks the witnesses of all sessions, and returns the sessions that have ended.
// They stay in the table until forget.
func (t *sessions) dead() []string {
	t.mu.RLock()
	all := make([]*session, 0, len(t.byKey))
	for _, s := range t.byKey {
		if !s.ended && s.witness != nil {
			all = append(all, s)
		}
	}
	t.mu.RUnlock()
	var gone []*session
	for _, s := range all { // one system call each, so not under the lock
		if !s.witness.Holds() {
			gone = append(gone, s)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range gone {
		s.ended = true
	}
	var out []string
	for _, s := range t.byKey {
		if s.joined == nil && !s.lives() {
			out = append(out, s.owner.Session)
		}
	}
	return slices.AppendSeq(out, maps.Keys(t.late))
}

// forget removes the sessions whose leases the book has ended, and those without a sign
// of life for long.
func (t *sessions) forget(names []string) {
	over := make(map[string]bool, len(names))
	for _, n := range names {
		over[n] = true
	}
	t.formers.tidy()
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paces.forget()
	for name := range over {
		delete(t.late, name)
	}
	for key, s := range t.byKey {
		kept := int64(keptUnbound)
		if s.peer != "" || s.joined != nil {
			kept = int64(keptBound)
		}
		ended := s.joined == nil && !s.lives() && over[s.owner.Session] || s.joined != nil && s.ended
		if ended || now-s.last.Load() > kept && s.calls+s.listens+s.subs == 0 {
			t.drop(key, s)
		}
	}
}

// drop removes a session. The caller holds mu.
func (t *sessions) drop(key string, s *session) {
	delete(t.byKey, key)
	t.former(s)
	if t.byID[s.peer] == s {
		delete(t.byID, s.peer)
	}
	if lead := s.joined; lead != nil {
		lead.members = slices.DeleteFunc(lead.members, func(m *session) bool { return m == s })
	}
	if s.witness != nil {
		s.witness.Release()
	}
}

// due returns the sessions whose leases have to be extended: live ones with a sign of
// life that the book has not been told.
func (t *sessions) due() []string {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, s := range t.byKey {
		if s.joined != nil && !s.ended {
			s.joined.last.Store(max(s.joined.last.Load(), s.last.Load()))
		}
	}
	for _, s := range t.byKey {
		if s.peer != "" && s.joined == nil && s.lives() && s.last.Load() > s.touched && now-s.touched >= int64(t.touch) {
			s.touched = now
			out = append(out, s.owner.Session)
		}
	}
	return out
}

// hasEnded reports whether a session is known to have ended, also when it has left the table.
func hasEnded(t *sessions, s *session) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return !s.lives()
}
