package relay

import (
	"errors"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/upstream"
)

// standby waits for the end of a connection of legacy sessions that listen. It then opens the
// next one, so that they hear the server again before they call it. Its hub guards its fields.
type standby struct {
	hub   *hub
	conn  *liveConn // nil: the first attempt to open one failed
	began time.Time
	falls int // connections in a row that ended soon
}

// guard makes a standby wait for the end of c. On the successor of a connection the clients
// are told to look again, and told is true. The caller holds mu.
func (h *hub) guard(c *liveConn) (told bool) {
	before := h.guarded
	if before != nil && before.conn == c || h.b.Builtin != nil {
		return false
	}
	h.guarded = &standby{hub: h, conn: c, began: time.Now()}
	if before != nil {
		h.guarded.falls = before.falls
		go h.lookAgain()
	}
	upstream.After(c.conn, h.guarded.revive)
	return before != nil
}

// await opens a connection for sessions that listen, after an attempt that failed.
func (h *hub) await() {
	s := &standby{hub: h, began: time.Now()}
	h.mu.Lock()
	before := h.guarded
	if before.holds() {
		h.mu.Unlock()
		return
	}
	if before != nil {
		s.falls = before.falls
	}
	h.guarded = s
	h.mu.Unlock()
	s.revive()
}

// holds reports whether the standby waits for the end of an open connection.
func (s *standby) holds() bool { return s != nil && s.conn != nil && s.conn.alive() }

// revive opens connections until one succeeds, as long as a session listens that may use the
// server, and the server is configured. A program that ended by itself without an error, such as
// an idle one, is not started again before a session needs it.
func (s *standby) revive() {
	if s.conn != nil && upstream.Finished(s.conn.conn) {
		return
	}
	for pause := s.pause(); s.needed(); pause = min(2*pause, lastRetry) {
		select {
		case <-time.After(pause):
		case <-s.hub.ctx.Done():
			return
		}
		if !s.needed() {
			return
		}
		if _, err := s.hub.get(s.hub.ctx); err == nil || errors.Is(err, failure.ErrGone) {
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

// needed reports whether policy lets a session that listens see the server. Without a session
// that listens the standby is given up.
func (s *standby) needed() bool {
	return slices.ContainsFunc(s.waiting(), func(w *watcher) bool { return w.sees() })
}

// waiting returns the watchers of the sessions that listen.
func (s *standby) waiting() (out []*watcher) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.hub.guarded != s {
		return nil
	}
	out = s.hub.watchers.that(func(w *watcher) bool { return w.listens && w.session != nil })
	if len(out) == 0 {
		s.hub.guarded = nil
	}
	return out
}
