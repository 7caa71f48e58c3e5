package agent

import (
	"sync"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// Presence: whether somebody reads what is sent now.
const (
	awake  = "awake"  // a call of it waits for mail, or it called a moment ago
	asleep = "asleep" // its session lives; wake says what tells it of mail
	gone   = "gone"   // its session has ended: mail waits until the next one takes the name
)

// callTime is how long an agent counts as awake after a call of its own. Signs
// of life of its client, such as keep-alives, are none.
const callTime = time.Minute

// standing is the presence of a peer, and what wakes it.
type standing struct{ presence, wake string }

// standingOf is the standing of a peer whose lease, in the book, is live or not.
func (s *Server) standingOf(peer string, live bool) standing {
	if peer == s.o.Book.OperatorID() {
		return s.human.standing(time.Now())
	}
	return s.sessions.standing(peer, live)
}

// standing is that of a peer as far as this node knows. A session of another
// node is asleep: what it does is known there. A process that lives is not gone
// when its lease has ended, since it is only silent.
func (t *sessions) standing(peer string, live bool) standing {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.byID[peer]
	switch {
	case s == nil && live:
		return standing{asleep, wakeNone}
	case s == nil || !s.lives() || !live && !s.held():
		return standing{gone, wakeNone}
	}
	out := standing{asleep, t.wokenBy(s)}
	if out.wake == wakeWait || t.now()-s.called.Load() < int64(callTime) && s.called.Load() > 0 {
		out.presence = awake
	}
	return out
}

// wake is how a peer will be told of mail, as far as this node knows.
func (t *sessions) wake(peer string, live bool) string { return t.standing(peer, live).wake }

// held reports that the process behind a session is known to live.
func (s *session) held() bool { return s.witness != nil && s.witness.Holds() }

// operatorSeen is what is known of the operator's presence.
type operatorSeen struct {
	mu    sync.Mutex
	last  time.Time // of a command; zero: none yet
	tails int       // that wait now
}

// standing is the human's: awake while `doorward agent tail` runs or a command
// was given a moment ago, never gone. Nothing but a tail tells of mail.
func (h *operatorSeen) standing(now time.Time) standing {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.tails > 0:
		return standing{awake, wakeListen}
	case !h.last.IsZero() && now.Sub(h.last) < callTime:
		return standing{awake, wakeNone}
	}
	return standing{asleep, wakeNone}
}

// came notes a command of the operator's.
func (h *operatorSeen) came() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// watches counts a tail that waits.
func (h *operatorSeen) watches() (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tails++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tails--
		h.last = time.Now()
	}
}

// standingIn is that of one of a message's deliveries; what is held wakes nobody.
func (s *Server) standingIn(d mail.Placed) standing {
	out := s.standingOf(d.PeerID, d.Live)
	if d.State == mail.Held {
		out.wake = wakeNone
	}
	return out
}
