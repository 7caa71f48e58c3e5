package agent

import "github.com/doorward/doorward/internal/messaging/mail"

// bind notes the peer of a session with its present name; a zero peer: none any more. It
// reports whether that is another peer than before.
func (t *sessions) bind(s *session, p mail.Peer) (other bool) {
	t.mu.RLock()
	same := s.peer == p.ID && s.name == nameOf(p)
	t.mu.RUnlock()
	if same {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return become(t, s, p)
}

// names returns how many calls of register have given a session a peer.
func names(t *sessions, s *session) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return s.named
}

// registers counts a call of register that has given a session a peer, before bind notes it.
func registers(t *sessions, s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.named++
}

// lose is bind without a peer, for a read that found none. before is what names returned before
// the read: a peer of a later register stays.
func lose(t *sessions, s *session, before int) (other bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.named == before && become(t, s, mail.Peer{})
}

// become makes p the peer of a session, and reports whether that is another one. The caller
// holds mu.
func become(t *sessions, s *session, p mail.Peer) (other bool) {
	t.paces.rename(s, nameOf(p))
	if s.peer == p.ID {
		return false
	}
	if t.byID[s.peer] == s {
		delete(t.byID, s.peer)
	}
	if p.ID == "" {
		t.former(s)
	}
	s.peer, s.hookTold, s.gaveUpTo = p.ID, 0, 0 // another mailbox has numbers of its own
	if p.ID != "" {
		t.byID[p.ID] = s
		s.touched = t.now()
		gather(t, s.shim)
	}
	return true
}

// nameOf returns a name that is unique among all principals; empty: no peer.
func nameOf(p mail.Peer) string {
	if p.ID == "" {
		return ""
	}
	return p.Principal + "\x00" + p.Namespace + "\x00" + p.Name
}

// peerOf returns the id of a session's peer, as far as it is known here.
func (t *sessions) peerOf(s *session) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return s.peer
}
