package agent

import (
	"sync"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// Presence: whether a peer is likely to read a message now.
const (
	awake  = "awake"  // a call of it waits for mail, or it made a call in the last minute
	asleep = "asleep" // its session lives; wake states what will tell it of mail
	gone   = "gone"   // its session has ended; mail waits until the next session takes the name
)

// callTime is how long an agent counts as awake after a call. Signs of life of its
// client, such as keep-alives, are no calls.
const callTime = time.Minute

// standing is the presence of a peer, and the way in which it is woken.
type standing struct{ presence, wake string }

// standingOf returns the standing of a peer; live is whether its lease in the book is
// live.
func (s *Server) standingOf(peer string, live bool) standing {
	if peer == s.o.Book.OperatorID() {
		return s.human.standing(time.Now())
	}
	return s.sessions.standing(peer, live)
}

// standing returns the standing of a peer as far as this node knows. A session of another
// node counts as asleep, because only that node knows its calls. While the process behind
// a session lives, the peer is not gone, even if its lease has ended.
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
	if s.calls > 0 || t.now()-s.called.Load() < int64(callTime) && s.called.Load() > 0 {
		out.presence = awake
	}
	return out
}

// wake returns how a peer will be told of mail, as far as this node knows.
func (t *sessions) wake(peer string, live bool) string { return t.standing(peer, live).wake }

// held reports that the process behind a session is known to live.
func (s *session) held() bool { return s.witness != nil && s.witness.Holds() }

// operatorSeen holds the signs of the operator's presence.
type operatorSeen struct {
	mu    sync.Mutex
	last  time.Time // of the last command; zero: none yet
	tails int       // waiting tails
}

// standing returns the operator's standing: awake while `doorward agent tail` runs or
// after a recent command, never gone. Only a tail tells of mail.
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

// came notes a command of the operator.
func (h *operatorSeen) came() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// watches counts a waiting tail until leave is called.
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

// standingIn returns the standing of the recipient of a delivery. A held message wakes no
// peer.
func (s *Server) standingIn(d mail.Placed) standing {
	out := s.standingOf(d.PeerID, d.Live)
	if d.State == mail.Held {
		out.wake = wakeNone
	}
	return out
}
