package relay

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/upstream"
)

// A client that had no stream when its server was replaced by another process is told to look again
// when it opens one.
func TestAServerThatWasReplacedUnheardIsToldOf(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", era)
			h := build(t, []Server{s.server()})
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			c.call("tools/list", `{}`)
			h.relay.RestartServer("s")
			eventually(t, "the connection ends", func() bool { return !h.link().live.Load().alive() })
			c.tool("t", "")
			c.listen().nextOf(protocol.ToolsChanged)
		})
	}
}

// A client whose server was replaced by a reload in a pause of its session is told to look again.
func TestAServerThatWasReplacedInAPauseIsToldOf(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", era)
			h := build(t, []Server{s.server()})
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			h.pause(c)
			h.relay.SetServers([]Server{s.server()})
			h.relay.Announce()
			c.listen().nextOf(protocol.ToolsChanged)
		})
	}
}

// The subscriptions of a session that listens go on at the server by which a reload replaces
// theirs, although the client asks for nothing.
func TestSubscriptionsGoOnAfterAReload(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		for path, prefix := range eachPath {
			t.Run(era+path, func(t *testing.T) {
				t.Parallel()
				s, next := stdio(t, "s", era), stdio(t, "s", era)
				h := build(t, []Server{s.server()})
				c := h.legacy(path, "uid:1000", `{}`)
				c.call("resources/subscribe", `{"uri":"`+prefix+`file:///a"}`)
				stream := c.listen()
				eventually(t, "it listens", h.sessionOf(c).Listening)
				h.relay.SetServers([]Server{next.server()})
				h.relay.Announce()
				everything(t, stream, prefix+"file:///a")
				eventually(t, "the next server is subscribed", func() bool { return len(next.watched()) > 0 })
				next.change(protocol.ResourceUpdated, `{"uri":"file:///a","x":1.0}`)
				for field(stream.nextOf(protocol.ResourceUpdated), "params", "x") == "" {
				}
			})
		}
	}
}

// A subscription that begins while that of another session ends at the server is not lost.
func TestASubscriptionThatCrossesAnEndStays(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.Method == "resources/unsubscribe" {
			q.arrive()
		}
		q.result(`{}`)
	}
	h := build(t, []Server{s.server()})
	ann, bob := h.legacy("/mcp/s", "uid:1000", `{}`), h.legacy("/mcp/s", "uid:1000", `{}`)
	ann.call("resources/subscribe", `{"uri":"file:///a"}`)
	go ann.call("resources/unsubscribe", `{"uri":"file:///a"}`)
	s.last("resources/unsubscribe")
	bob.call("resources/subscribe", `{"uri":"file:///a"}`)
	s.proceed <- struct{}{}
	eventually(t, "the server is told again", func() bool { return len(s.got("resources/subscribe")) == 3 })
}

// A subscription that is made again for a session that comes back is not lost either.
func TestASubscriptionThatIsMadeAgainWhileOneEndsStays(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.Method == "resources/unsubscribe" {
			q.arrive()
		}
		q.result(`{}`)
	}
	h := build(t, []Server{s.server()})
	bob := h.legacy("/mcp/s", "uid:1000", `{}`)
	bob.call("resources/subscribe", `{"uri":"file:///a"}`)
	h.pause(bob)
	ann := h.legacy("/mcp/s", "uid:1000", `{}`)
	go ann.call("resources/unsubscribe", `{"uri":"file:///a"}`)
	s.last("resources/unsubscribe")
	bob.listen()
	eventually(t, "it is made again", func() bool { return len(s.got("resources/subscribe")) == 2 })
	s.proceed <- struct{}{}
	eventually(t, "the server is told again", func() bool { return len(s.got("resources/subscribe")) == 3 })
}

// The end of a client's subscriptions at a slow legacy server spares those that another client has
// begun meanwhile.
func TestTheEndOfAListenSparesTheNext(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.Method == "resources/unsubscribe" {
			q.arrive()
		}
		q.result(`{}`)
	}
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/s", "uid:1000")
	const both = `{"resourceSubscriptions":["file:///a","file:///b"]}`
	first, _ := m.subscribe(both)
	hub := &h.link().hub
	hub.mu.Lock()
	ends := hub.last
	hub.mu.Unlock()
	first.stop()
	s.last("resources/unsubscribe")
	m.subscribe(both)
	s.proceed <- struct{}{}
	<-ends.ended
	if n := len(s.got("resources/unsubscribe")); n != 1 {
		t.Errorf("%d subscriptions were ended, want 1", n)
	}
}

// A listen that its server ended, and a list that a server owes, start no server for clients that
// have left or may not see it by now.
func TestNobodyIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*house, *reply){
		"left": func(h *house, r *reply) {
			r.stop()
			eventually(h.t, "the client leaves", func() bool { return h.link().hub.watchers.empty() })
		},
		"denied": func(h *house, _ *reply) { h.forbid(`forbid (principal, action, resource == Server::"s");`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", "modern")
			h := build(t, []Server{s.server()})
			stream, _ := h.modern("/mcp/s", "uid:1000").subscribe(`{"toolsListChanged":true}`)
			l := h.link()
			away(h, stream)
			s.open()[0].close()
			eventually(t, "the connection ends", func() bool { return !l.live.Load().alive() })
			if done := l.hub.last.retry(1); done != (name == "left") {
				t.Errorf("retry: %v", done)
			}
			if _, ok := l.late.asks("tools/list"); ok {
				t.Error("the list was asked for")
			}
			if n := s.connected(); n != 1 {
				t.Errorf("%d processes, want 1", n)
			}
		})
	}
}

// A client that comes later is told of a list that a server owed to it too, although the server
// answers as it did for another client.
func TestAnOwedListIsToldToEachClient(t *testing.T) {
	t.Parallel()
	s := unreported(stdio(t, "s", "legacy"))
	h := build(t, []Server{s.server()})
	ann := h.legacy("/mcp", "uid:1000", `{}`)
	ann.call("tools/list", `{}`)
	late, sum := &h.link().late, [32]byte{1}
	late.settle("tools/list", sum)
	bob := h.legacy("/mcp", "uid:1000", `{}`)
	bob.call("prompts/list", `{}`)
	stream := bob.listen()
	late.settle("tools/list", sum)
	stream.nextOf(protocol.ToolsChanged)
	late.settle("tools/list", sum)
	late.hub.spread(upstream.Event{Method: protocol.PromptsChanged})
	if m := stream.next(); !strings.Contains(m, protocol.PromptsChanged) {
		t.Errorf("told again of the same answer: %s", m)
	}
}
