package client

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

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

// listening is one subscriptions/listen of the client.
type listening struct {
	m     *wire.Message
	line  []byte
	acked bool // the client has its acknowledgement
	tries int  // in a row that were refused since
}

// refusals is how often in a row a listen may be refused that the client has
// already: the stream before it may not have been noticed to have ended.
const refusals = 3

// listen carries one subscriptions/listen for as long as the client wants it,
// and is there.
func (s *shim) listen(ctx context.Context, m *wire.Message, line []byte) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.listens, cancel)()
	for l := (&listening{m: m, line: line}); s.listenOnce(ctx, l); {
		if l.tries > 0 {
			s.rest(ctx, time.Second)
		}
	}
}

// listenOnce is listen with one session; true: it is to be begun again, since
// another session has followed.
func (s *shim) listenOnce(ctx context.Context, l *listening) bool {
	round, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := s.send(round, l.m, func() (*response, error) {
		r, err := s.c.post(round, s.path, l.m, l.line, modernHeaders(l.m))
		return &response{r, ""}, err
	})
	if err != nil {
		s.lost(ctx, l.m.ID, err)
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
		answered = got.Kind == wire.Response
		return s.heard(l, got, raw)
	})
	switch {
	case ctx.Err() != nil:
		return false
	case !answered && followed.Load(), answered && l.tries > 0:
		return true
	case !answered:
		s.lost(ctx, l.m.ID, err)
	}
	return false
}

// heard passes on what a listen brings; false: it is over. Once the client has
// its acknowledgement it gets no other one, but is told to look again at what it
// asked for: another session may see something else, and what changed between
// the two was told to neither.
func (s *shim) heard(l *listening, got *wire.Message, raw []byte) bool {
	ack := got.Method == "notifications/subscriptions/acknowledged"
	switch {
	case l.acked && got.Kind == wire.Response && got.Error != nil && l.tries < refusals:
		l.tries++
		return false
	case ack && l.acked:
		s.lookAgain(l)
	default:
		s.write(named(l.m.ID, got, raw))
	}
	l.acked, l.tries = l.acked || ack, 0
	return got.Kind != wire.Response
}

// lookAgain tells the client of everything that its listen is about and that
// depends on the session.
func (s *shim) lookAgain(l *listening) {
	want := wire.Get(l.m.Params, "notifications")
	tag := wire.Set(nil, wire.Edit{Key: wire.MetaSubscription, Value: l.m.ID})
	tell := func(method string, edits ...wire.Edit) {
		s.write(wire.AppendNotification(nil, method, wire.Set(nil, append(edits, wire.Edit{Key: "_meta", Value: tag})...)))
	}
	if string(wire.Get(want, "promptsListChanged")) == "true" {
		tell("notifications/prompts/list_changed")
	}
	if string(wire.Get(want, "resourcesListChanged")) == "true" {
		tell("notifications/resources/list_changed")
	}
	for uri := range wire.Elements(wire.Get(want, "resourceSubscriptions")) {
		if ofGuidance(string(uri)) {
			tell("notifications/resources/updated", wire.Edit{Key: "uri", Value: uri})
		}
	}
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

// ofGuidance reports whether a URI, raw, may be one of the instructions.
func ofGuidance(uri string) bool {
	return strings.Contains(uri, "instr://") || strings.Contains(uri, "instructions://")
}

// again repeats the subscriptions to instructions. Those of other servers do not
// depend on the session.
func (l *legacySession) again(s *shim) {
	l.mu.Lock()
	var subs [][]byte
	for uri, line := range l.uris {
		if ofGuidance(uri) {
			subs = append(subs, line)
		}
	}
	l.mu.Unlock()
	for _, line := range subs {
		_, _ = l.post(s, line) // a session that is forgotten is opened again by the next request, with these
	}
}
