package client

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// A subscription belongs to the delivery session it was opened with. When that
// session is replaced or the daemon restarts, the shim subscribes again, and tells
// the client to look again at what it listens for.

// hold replaces the token, and closes change if it belongs to another session. The caller
// holds g.mu.
func (g *guide) hold(h held) {
	other := h.token != g.held.token && (h.session == "" || h.session != g.held.session)
	g.held = h
	if other {
		close(g.change)
		g.change = make(chan struct{})
	}
}

// other returns a channel that is closed once the token of another session than token's is
// presented. nil: that never happens, because the token comes from the environment, or no
// guide is used.
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

// presented returns the token that is presented now; empty: none.
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
	acked bool   // the client has the acknowledgement
	again int    // number of failed rounds in a row; see roundsKept
	last  []byte // the response with which the last round ended; empty: none
}

const (
	// roundsKept is the number of failed rounds in a row after which the client gets
	// the response of the last. Single rounds may fail because the daemon has not yet
	// noticed the end of the stream before, or is about to stop.
	roundsKept = 3
	// roundsLong is the least duration of a round that has not failed.
	roundsLong = 2 * time.Second
)

// listen carries one subscriptions/listen until the client cancels it or ends. Each
// attempt is a round. Once the client has the acknowledgement, it is not told of the end
// of a round because its session was replaced or the daemon was restarted.
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

// round carries the listen with one session. followed means that the session was replaced.
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

// heard handles a message of a listen; false: the listen has ended. The client gets only
// the first acknowledgement. A later one begins a new round, and the client is notified of
// changes instead: the new session may see other documents, and changes between two rounds
// were not reported.
func (s *shim) heard(l *listening, got *wire.Message, raw []byte) bool {
	switch ack := got.Method == "notifications/subscriptions/acknowledged"; {
	case got.Kind == wire.Response:
		l.last = append([]byte(nil), named(l.m.ID, got, raw)...)
		return false
	case ack && l.acked:
		s.lookAgain(l)
	case l.acked && got.Method == "notifications/cancelled":
		// It precedes the response with which a listen ends, and is not forwarded.
	default:
		l.acked = l.acked || ack
		s.write(raw)
	}
	return true
}

// lookAgain notifies the client of a change of everything that it listens for.
func (s *shim) lookAgain(l *listening) {
	want := rawjson.Get(l.m.Params, "notifications")
	tag := rawjson.Set(nil, rawjson.Edit{Key: wire.MetaSubscription, Value: l.m.ID})
	tell := func(method string, edits ...rawjson.Edit) {
		s.write(rawjson.AppendNotification(nil, method, rawjson.Set(nil, append(edits, rawjson.Edit{Key: "_meta", Value: tag})...)))
	}
	for member, method := range map[string]string{"toolsListChanged": protocol.ToolsChanged, "promptsListChanged": protocol.PromptsChanged, "resourcesListChanged": protocol.ResourcesChanged} {
		if rawjson.IsTrue(rawjson.Get(want, member)) {
			tell(method)
		}
	}
	for uri := range rawjson.Elements(rawjson.Get(want, "resourceSubscriptions")) {
		tell(protocol.ResourceUpdated, rawjson.Edit{Key: "uri", Value: uri})
	}
}

// begin lets an initialized session listen. again: it replaces another session, so it takes
// over the name of that one, and the client is told to look again.
func (l *legacySession) begin(s *shim, again bool) {
	if again {
		l.resume(s)
	}
	l.hear(s)
	l.following.Do(func() { go l.follow(s) })
	s.channel.beginLegacy()
	if again {
		l.lookAgain(s)
	}
}

// lookAgain notifies the client of a change of each list that may change, and of each resource
// that it is subscribed to.
func (l *legacySession) lookAgain(s *shim) {
	l.mu.Lock()
	caps, uris := l.caps, slices.Sorted(maps.Keys(l.uris))
	l.mu.Unlock()
	for kind, method := range map[string]string{"tools": protocol.ToolsChanged, "prompts": protocol.PromptsChanged, "resources": protocol.ResourcesChanged} {
		if rawjson.IsTrue(rawjson.GetPath(caps, kind, "listChanged")) {
			s.write(rawjson.AppendNotification(nil, method, nil))
		}
	}
	for _, uri := range uris {
		tellUpdated(s, uri)
	}
}

// subscribed reports whether the client itself has subscribed to a resource.
func (l *legacySession) subscribed(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for raw := range l.uris {
		if text([]byte(raw)) == uri {
			return true
		}
	}
	return false
}

// follow subscribes a legacy client again whenever its delivery session is replaced.
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

// ofGuidance reports whether a raw URI may be that of a document.
func ofGuidance(uri string) bool {
	return strings.Contains(uri, "instr://") || strings.Contains(uri, "instructions://")
}

// again repeats the subscriptions to documents. Other subscriptions do not depend on the
// delivery session.
func (l *legacySession) again(s *shim) {
	l.mu.Lock()
	var subs [][]byte
	for uri, line := range l.uris {
		if ofGuidance(uri) {
			subs = append(subs, line)
		}
	}
	l.mu.Unlock()
	s.repeat(subs, l.post)
}
