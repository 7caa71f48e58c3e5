package agent

// The functions in this file are about what the streams of a session report.

// actsAs returns the session whose mail a stream of s reports: the one that s has joined, or s.
// A session may join another one after its streams have begun.
func actsAs(t *sessions, s *session) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s.joined != nil {
		return s.joined
	}
	return s
}

// gather makes the sessions behind a shim with open streams join the sibling that has a peer
// now: the client of a stream may make no further call. The caller holds the lock of the table.
func gather(t *sessions, shim string) {
	if !t.join || shim == "" {
		return
	}
	for _, s := range t.byKey {
		if s.shim == shim && s.listens+s.subs > 0 {
			t.leader(s)
		}
	}
}

// streams returns the numbers of open streams that report the mail of s: its own, and those of
// siblings that joined it. The caller holds the lock of the table.
func (s *session) streams() (listens, subs int) {
	listens, subs = s.listens, s.subs
	for _, m := range s.members {
		listens, subs = listens+m.listens, subs+m.subs
	}
	return listens, subs
}

// gave notes that an inbox has given messages of the peer to a session, the newest of which is
// upTo.
func gave(t *sessions, s *session, peer string, upTo int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.gives++
	if s.peer == peer {
		s.gaveUpTo = max(s.gaveUpTo, upTo)
	}
}

// given is what a session was given at some time.
type given struct {
	gives int
	upTo  int64
}

// givenTo returns what a session was given until now; nil was given nothing.
func givenTo(t *sessions, s *session) given {
	if s == nil {
		return given{}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return given{s.gives, s.gaveUpTo}
}
