package client

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// A subscription belongs to the delivery session it was opened with. When that
// session is replaced or the daemon restarts, the bridge subscribes again; the
// client does not notice.

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

// other is closed once a session other than token's is presented. nil: never,
// because the token is the environment's, or none is presented.
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
	acked bool   // the client has its acknowledgement
	again int    // rounds in a row that brought nothing, or ended soon
	last  []byte // the answer with which the last round ended; empty: none came
}

const (
	// roundsKept is how many rounds in a row may be in vain before the client gets
	// the answer of the last: the stream before one may not have been noticed to
	// have ended, or the daemon is about to end.
	roundsKept = 3
	// roundsLong is how long a round lasts that was not in vain.
	roundsLong = 2 * time.Second
)

// listen carries one subscriptions/listen for as long as the client wants it,
// and is there. Once the client has its acknowledgement, what ends a round is
// not told: a session that another one follows, a daemon that is started again.
func (s *shim) listen(ctx context.Context, m *wire.Message, line []byte) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.listens, cancel)()
	for l := (&listening{m: m, line: line}); ; s.rest(ctx, time.Duration(l.again)*time.Second) {
		followed, err := s.round(ctx, l)
		switch {
		case ctx.Err() != nil:
			return
		case followed, l.acked && l.again < roundsKept:
			continue
		case l.last != nil:
			s.write(l.last)
		default:
			s.lost(ctx, m.ID, err)
		}
		return
	}
}

// round is listen with one session. followed: another one has come.
func (s *shim) round(ctx context.Context, l *listening) (followed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.last = nil
	l.again++
	resp, err := s.send(ctx, l.m, func() (*response, error) {
		r, err := s.c.post(ctx, s.path, l.m, l.line, modernHeaders(l.m))
		return &response{r, ""}, err
	})
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	var other atomic.Bool
	go func() {
		select {
		case <-s.c.guide.other(resp.Request.Header.Get(protocol.HeaderSession)):
			other.Store(true)
			cancel()
		case <-ctx.Done():
		}
	}()
	begun := time.Now()
	err = s.c.messages(resp.Response, func(got *wire.Message, raw []byte) bool { return s.heard(l, got, raw) })
	if other.Load() || l.acked && time.Since(begun) > roundsLong {
		l.again = 0
	}
	return l.last == nil && other.Load(), err
}

// heard passes on what a listen brings; false: it is over. Once the client has
// its acknowledgement it gets no other one, but is told to look again at what it
// asked for: another session may see something else, and what changed between
// two rounds was told to neither.
func (s *shim) heard(l *listening, got *wire.Message, raw []byte) bool {
	switch ack := got.Method == "notifications/subscriptions/acknowledged"; {
	case got.Kind == wire.Response:
		l.last = append([]byte(nil), named(l.m.ID, got, raw)...)
		return false
	case ack && l.acked:
		s.lookAgain(l)
	case l.acked && got.Method == "notifications/cancelled":
		// It comes before the answer of one that has ended, and says no more.
	default:
		l.acked = l.acked || ack
		s.write(raw)
	}
	return true
}

// lookAgain tells the client of everything that its listen is about and that
// depends on the session.
func (s *shim) lookAgain(l *listening) {
	want := wire.Get(l.m.Params, "notifications")
	tag := rawjson.Set(nil, rawjson.Edit{Key: wire.MetaSubscription, Value: l.m.ID})
	tell := func(method string, edits ...rawjson.Edit) {
		s.write(rawjson.AppendNotification(nil, method, rawjson.Set(nil, append(edits, rawjson.Edit{Key: "_meta", Value: tag})...)))
	}
	if string(wire.Get(want, "promptsListChanged")) == "true" {
		tell("notifications/prompts/list_changed")
	}
	if string(wire.Get(want, "resourcesListChanged")) == "true" {
		tell("notifications/resources/list_changed")
	}
	for uri := range wire.Elements(wire.Get(want, "resourceSubscriptions")) {
		if ofGuidance(string(uri)) {
			tell("notifications/resources/updated", rawjson.Edit{Key: "uri", Value: uri})
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
