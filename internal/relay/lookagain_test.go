package relay

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

var (
	eachEra  = []string{"legacy", "modern"}
	eachPath = map[string]string{"/mcp/s": "", "/mcp": "doorward://s/"} // with the prefix of its addresses
)

// A client that could not be told of a change is told to look again when it opens its stream: of
// one of the policy while the stream was closed, and of what its servers may have changed in a
// pause of its session.
func TestAClientThatComesBackIsToldToLookAgain(t *testing.T) {
	t.Parallel()
	for what, away := range map[string]func(*house, *session){
		"a change of the policy": func(h *house, _ *session) { h.relay.Announce() },
		"a pause":                func(h *house, c *session) { h.pause(c) },
	} {
		for _, era := range eachEra {
			for path, prefix := range eachPath {
				t.Run(fmt.Sprint(what, " ", era, path), func(t *testing.T) {
					t.Parallel()
					s := stdio(t, "s", era)
					h := build(t, []Server{s.server()})
					c := h.legacy(path, "uid:1000", `{}`)
					stream := c.listen()
					eventually(t, "it listens", h.sessionOf(c).Listening)
					c.call("resources/subscribe", `{"uri":"`+prefix+`file:///a"}`)
					stream.stop()
					eventually(t, "the stream ends", func() bool { return !h.sessionOf(c).Listening() })
					away(h, c)
					everything(t, c.listen(), prefix+"file:///a")
				})
			}
		}
	}
}

// A client whose session goes on after a restart of the daemon is told to look again: its servers
// are other processes, and their definitions or the policy may have changed.
func TestAClientOfAnEarlierRunIsToldToLookAgain(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		for path, prefix := range eachPath {
			t.Run(era+path, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "sessions")
				first := build(t, []Server{stdio(t, "s", era).server()}, keeping(t, dir))
				c := first.legacy(path, "token:a", `{}`)
				c.call("resources/subscribe", `{"uri":"`+prefix+`file:///a"}`)
				first.door.Close()
				c.house = build(t, []Server{stdio(t, "s", era).server()}, keeping(t, dir))
				everything(t, c.listen(), prefix+"file:///a")
			})
		}
	}
}

// everything reads a stream until its client was told to look again at all lists and at a resource.
func everything(t *testing.T, stream *reply, uri string) {
	t.Helper()
	want := map[string]bool{protocol.ToolsChanged: true, protocol.PromptsChanged: true, protocol.ResourcesChanged: true, protocol.ResourceUpdated + uri: true}
	for len(want) > 0 {
		msg := stream.next()
		delete(want, text(msg, "method")+text(msg, "params", "uri"))
	}
}

// A legacy client hears of a new policy on the route of a server of either era.
func TestALegacyClientOfOneServerHearsOfANewPolicy(t *testing.T) {
	t.Parallel()
	for _, era := range eachEra {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			h := build(t, []Server{stdio(t, "s", era).server()})
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			stream := c.listen()
			eventually(t, "it listens", h.sessionOf(c).Listening)
			h.relay.Announce()
			stream.nextOf(protocol.ToolsChanged)
		})
	}
}

// A session that has come back from a pause just before it is to release its processes keeps them.
func TestASessionThatHasComeBackIsNotReleased(t *testing.T) {
	t.Parallel()
	h := build(t, []Server{stdio(t, "s", "legacy").server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	c.listen()
	eventually(t, "it listens", h.sessionOf(c).Listening)
	d := bound(h.sessionOf(c))
	d.rest(time.Now().Add(time.Hour))
	if n := len(d.all()); n != 1 {
		t.Errorf("%d links, want 1", n)
	}
}

// unreported makes a server that declares no reports of changes, so that each list is asked for.
func unreported(s *script) *script {
	s.caps = `{"tools":{},"prompts":{}}`
	return s
}

// A list that a server owes to one client is not forgotten when the server answers another one.
// The client is told then.
func TestAListOwedToOneClientOutlivesTheAnswerToAnother(t *testing.T) {
	t.Parallel()
	s := unreported(stdio(t, "s", "legacy"))
	h := build(t, []Server{s.server()})
	ann, bob := h.legacy("/mcp", "uid:1000", `{}`), h.legacy("/mcp", "uid:1000", `{}`)
	stream := ann.listen()
	ann.call("tools/list", `{}`)
	bob.call("tools/list", `{}`)
	late, wake := &h.link().late, make(chan struct{}, 1)
	late.mu.Lock()
	late.lists = map[string]chan struct{}{"tools/list": wake} // as in the pause after an attempt that failed
	late.mu.Unlock()
	bob.call("tools/list", `{}`)
	if !late.expected("tools/list") {
		t.Fatal("the list is not owed any more")
	}
	select {
	case <-wake:
	case <-time.After(20 * time.Second):
		t.Fatal("the pause goes on")
	}
	go late.run("tools/list", wake)
	stream.nextOf(protocol.ToolsChanged)
	eventually(t, "nothing is owed", func() bool { return !late.expected("tools/list") })
}

// link returns the only link to the server s.
func (h *house) link() (found *link) {
	b := h.relay.table.Load().byName["s"]
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.pool {
		found = l
	}
	return found
}

// A list that a server never answers delays the news of no other list.
func TestAnOwedListWaitsForNoOther(t *testing.T) {
	t.Parallel()
	s := unreported(stdio(t, "s", "legacy"))
	s.setList("prompts/list", "")
	s.serve = func(q *query) { <-q.ctx.Done() }
	h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.Timeout = time.Hour })})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	stream := c.listen()
	c.call("tools/list", `{}`)
	late := &h.link().late
	late.missed("prompts/list")
	s.last("prompts/list")
	late.missed("tools/list")
	stream.nextOf(protocol.ToolsChanged)
}

// A list that its client has given up is no answer of its server.
func TestAListThatIsGivenUpIsNoAnswer(t *testing.T) {
	t.Parallel()
	s, book := stdio(t, "s", "legacy"), shelf(t)
	const tools = `[{"name":"echo"}]`
	s.setList("tools/list", `{"tools":`+tools+`}`)
	book.Guard("s", false, nil).Judge(pin.Asker{Era: "legacy"}, pin.Tools, []byte(tools))
	h := build(t, []Server{s.server(pinnedBy(book, false))})
	b := h.relay.table.Load().byName["s"]
	target := aimed(t, "s", "tools/list", `{}`)
	target.b = b
	b.owed.Miss("tools/list", "slow")
	x := exchangeOf("uid:1000")
	x.Server, x.Method, x.Era = "s", "tools/list", front.Modern
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if reply := h.relay.lists.of(ctx, x, &target); !reply.None || b.owed.Text() == "" {
		t.Errorf("%+v; owed: %q", reply, b.owed.Text())
	}
}

// A subscription that a server refuses after its restart is tried again, and the client is told
// that the resource may have changed.
func TestASubscriptionThatWasNotRestoredIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	var refusals atomic.Int32
	s.serve = func(q *query) {
		if q.Method == "resources/subscribe" && refusals.Add(-1) >= 0 {
			q.fail(-32002, "Resource not found")
			return
		}
		q.result(`{}`)
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	c.call("resources/subscribe", `{"uri":"file:///a"}`)
	stream := c.listen()
	eventually(t, "the connection is guarded", func() bool { return h.guard(c) != nil })
	refusals.Store(1)
	h.relay.RestartServer("s")
	eventually(t, "the third request", func() bool { return len(s.got("resources/subscribe")) == 3 })
	stream.nextOf(protocol.ResourceUpdated) // after the restart
	stream.nextOf(protocol.ResourceUpdated) // after the third request
}

// A change that a listen was granted has room behind any number of other events.
func TestAGrantedChangeIsNotDropped(t *testing.T) {
	t.Parallel()
	h := build(t, nil)
	s := &subscription{from: &h.relay.listens, x: exchangeOf("uid:1000"), wake: make(chan struct{}, 1),
		granted: &subscribe.Filter{Tools: true, URIs: map[string]bool{"a": true}}}
	for i := range 2 * queued {
		s.put(upstream.Event{Method: protocol.TaskChanged, Params: fmt.Appendf(nil, `{"taskId":"%d"}`, i)})
	}
	for _, uri := range []string{"a", "other", "a"} {
		s.put(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(uri)})
	}
	for _, method := range []string{protocol.ToolsChanged, protocol.PromptsChanged} {
		s.put(upstream.Event{Method: method})
	}
	got := ""
	for _, e := range s.take() {
		if protocol.IsChange(e.Method) {
			uri, _ := rawjson.GetString(e.Params, "uri")
			got += e.Method + uri + " "
		}
	}
	equal(t, "changes", got, protocol.ResourceUpdated+"a "+protocol.ToolsChanged+" ")
}

// A listen that a server refuses because of what one client asks for ends the changes of no other
// client.
func TestAListenThatIsRefusedForOneClientGoesOnForOthers(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "modern")
			s.onListen = func(q *query) string {
				if strings.Contains(q.raw, "file:///bad") {
					return ""
				}
				return string(rawjson.Get(q.Params, "notifications"))
			}
			h := build(t, []Server{s.server()})
			m := h.modern("/mcp/s", "uid:1000")
			good, _ := m.subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["file:///good"]}`)
			_, ack := m.subscribe(`{"resourceSubscriptions":["file:///bad"]}`)
			equal(t, "nothing is honoured", field(ack, "params", "notifications"), `{}`)
			eventually(t, "another listen", func() bool { return s.listening() == 1 })
			good.nextOf(protocol.ToolsChanged) // it is told to look again
			change := func() { s.change(protocol.ResourceUpdated, `{"uri":"file:///good","x":1.0}`) }
			for change(); field(good.nextOf(protocol.ResourceUpdated), "params", "x") == ""; change() {
			} // a change may be one with an earlier one that is still to be sent
		})
	}
}

// A listen that a modern server has refused is asked for again when the next legacy client opens
// its stream.
func TestARefusedListenIsAskedForAgainByTheNextSession(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "modern")
	var refusals atomic.Int32
	refusals.Store(1)
	s.onListen = func(q *query) string {
		if refusals.Add(-1) >= 0 {
			return ""
		}
		return string(rawjson.Get(q.Params, "notifications"))
	}
	h := build(t, []Server{s.server()})
	ann, bob := h.legacy("/mcp/s", "uid:1000", `{}`), h.legacy("/mcp/s", "uid:1000", `{}`)
	ann.listen()
	hub := &h.link().hub
	eventually(t, "the listen is refused", func() bool {
		hub.mu.Lock()
		defer hub.mu.Unlock()
		return hub.now != nil && hub.now.void
	})
	stream := bob.listen()
	eventually(t, "the server listens", func() bool { return s.listening() == 1 })
	s.change(protocol.ToolsChanged, `{}`)
	stream.nextOf(protocol.ToolsChanged)
}
