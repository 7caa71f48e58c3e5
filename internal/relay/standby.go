package relay

import (
	"time"

	"github.com/doorward/doorward/internal/upstream"
)

// steadyTime is how long a connection is open if its end is no failure of its opening.
const steadyTime = 10 * time.Second

// standby waits for the end of a connection of legacy sessions that listen. It then opens the
// next one, so that they hear the server again before they call it. Its hub guards its fields.
type standby struct {
	hub   *hub
	conn  *liveConn
	began time.Time
	falls int // connections in a row that ended soon
}

// guard makes a standby wait for the end of c. On the successor of a connection the clients
// are told to look again. The caller holds mu.
func (h *hub) guard(c *liveConn) {
	before := h.guarded
	if before != nil && before.conn == c || h.b.Builtin != nil {
		return
	}
	h.guarded = &standby{hub: h, conn: c, began: time.Now()}
	if before != nil {
		h.guarded.falls = before.falls
		go h.lookAgain()
	}
	upstream.After(c.conn, h.guarded.revive)
}

// revive opens connections until one succeeds, as long as a session listens.
func (s *standby) revive() {
	for pause := s.pause(); ; pause = min(2*pause, lastRetry) {
		select {
		case <-time.After(pause):
		case <-s.hub.ctx.Done():
			return
		}
		if !s.needed() {
			return
		}
		if _, err := s.hub.get(s.hub.ctx); err == nil {
			return
		}
	}
}

// pause returns the time before the first attempt, which grows with each connection that
// ended soon.
func (s *standby) pause() time.Duration {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if time.Since(s.began) >= steadyTime {
		s.falls = 0
		return firstRetry
	}
	s.falls++
	return min(firstRetry<<min(s.falls-1, 6), lastRetry)
}

func (s *standby) needed() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.guarded == s && s.hub.listeners()
}
