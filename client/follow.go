package client

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/doorward/doorward/internal/wire"
)

// What a client listens to, it is told for the delivery session that it came
// with. So when that is followed by another one, what the client asked to hear
// of is asked for again with the other, and the client knows nothing of it.

// hold takes another token, and tells who follows when it is another session's.
// g.mu is held.
func (g *guide) hold(h held) {
	other := h.token != g.held.token && (h.session == "" || h.session != g.held.session)
	g.held = h
	if other {
		close(g.change)
		g.change = make(chan struct{})
	}
}

// other is closed once another session than that of token is presented. nil:
// never, since the token is the environment's, or nobody presents any.
func (g *guide) other(token string) <-chan struct{} {
	if g == nil || g.variable != "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if token == g.held.token {
		return g.change
	}
	now := make(chan struct{})
	close(now)
	return now
}

// presented is the token that is presented now.
func (g *guide) presented() string {
	if g == nil {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held.token
}

// listen carries one subscriptions/listen for as long as the client wants it,
// and is there.
func (s *shim) listen(ctx context.Context, m *wire.Message, line []byte) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.listens, cancel)()
	for acked := false; ; acked = true {
		if !s.listenOnce(ctx, m, line, acked) {
			return
		}
	}
}

// listenOnce is listen with one session; true: another one has followed. The
// client has its acknowledgement already when it was acked before.
func (s *shim) listenOnce(ctx context.Context, m *wire.Message, line []byte, acked bool) bool {
	round, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := s.send(round, m, func() (*response, error) {
		r, err := s.c.post(round, s.path, m, line, modernHeaders(m))
		return &response{r, ""}, err
	})
	if err != nil {
		s.lost(ctx, m.ID, err)
		return false
	}
	defer resp.Body.Close()
	var followed atomic.Bool
	go func() {
		select {
		case <-s.c.guide.other(resp.Request.Header.Get(wire.HeaderSession)):
			followed.Store(true)
			cancel()
		case <-round.Done():
		}
	}()
	answered := false
	err = s.c.messages(resp.Response, func(got *wire.Message, raw []byte) bool {
		answered = answered || got.Kind == wire.Response
		if !acked || got.Method != "notifications/subscriptions/acknowledged" {
			s.write(named(m.ID, got, raw))
		}
		return true
	})
	if !answered && followed.Load() && ctx.Err() == nil {
		return true
	}
	if !answered {
		s.lost(ctx, m.ID, err)
	}
	return false
}

// follow subscribes a legacy client again whenever its delivery session is
// followed by another one.
func (l *legacySession) follow(s *shim) {
	for token := s.c.guide.presented(); ; {
		select {
		case <-s.c.guide.other(token):
		case <-s.ctx.Done():
			return
		}
		if token = s.c.guide.presented(); token != "" {
			l.again(s)
		}
	}
}

// again repeats the subscriptions to instructions. Those of other servers do not
// depend on the session.
func (l *legacySession) again(s *shim) {
	l.mu.Lock()
	var subs [][]byte
	for uri, line := range l.uris {
		if strings.Contains(uri, "instr://") || strings.Contains(uri, "instructions://") {
			subs = append(subs, line)
		}
	}
	l.mu.Unlock()
	for _, line := range subs {
		_, _ = l.post(s, line) // a session that is forgotten is opened again by the next request, with these
	}
}
