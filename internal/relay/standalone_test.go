package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/policytest"
)

// A legacy session gets the changes of lists and of its subscriptions on its
// standalone stream, from servers of either era.
func TestStandaloneStream(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for kind, start := range transports {
			t.Run(era+" "+kind, func(t *testing.T) {
				t.Parallel()
				s := start(t, "s", era)
				h := build(t, []Server{s.server(instances("session"))})
				c, other := h.legacy("/mcp/s", "uid:1000", `{}`), h.legacy("/mcp/s", "uid:1000", `{}`)
				stream, quiet := c.listen(), other.listen()
				if era == "modern" {
					eventually(t, "listens", func() bool { return s.listening() == 2 })
				}
				equal(t, "subscribe", field(c.call("resources/subscribe", `{"uri":"file:///a"}`), "error"), "")
				tell := func(method, params string) { s.open()[len(s.open())-2].tell(method, params) }
				if era == "modern" {
					tell = func(method, params string) { s.tellListeners("file:///a", method, params) }
					eventually(t, "the new listen", func() bool { return strings.Contains(s.last("subscriptions/listen").raw, "file:///a") })
				}
				tell(protocol.ResourceUpdated, `{"uri":"file:///a","x":1.0}`)
				update := stream.nextOf(protocol.ResourceUpdated)
				for field(update, "params", "x") == "" { // told to look again when the listen changed
					update = stream.nextOf(protocol.ResourceUpdated)
				}
				equal(t, "update", field(update, "params"), `{"uri":"file:///a","x":1.0}`)
				tell(protocol.ToolsChanged, `{}`)
				stream.nextOf(protocol.ToolsChanged)
				equal(t, "unsubscribe", field(c.call("resources/unsubscribe", `{"uri":"file:///a"}`), "error"), "")
				quiet.silent()
			})
		}
	}
}

// A change that comes on the stream of a call is not passed with the call. It
// goes to the listeners.
func TestChangeDuringACall(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := web(t, "s", era)
			s.serve = func(q *query) {
				q.notify(protocol.ToolsChanged, `{}`)
				q.notify("notifications/future", `{}`)
				q.result(`{}`)
			}
			h := build(t, []Server{s.server()})
			c, m := h.legacy("/mcp/s", "uid:1000", `{}`), h.modern("/mcp/s", "uid:1000")
			stream := c.listen()
			listen, _ := m.subscribe(`{"toolsListChanged":true}`)
			for who, r := range map[string]*reply{"legacy": c.begin("tools/call", `{"name":"t"}`), "modern": m.begin("tools/call", `{"name":"t"}`)} {
				r.end()
				if len(r.before) != 1 || text(r.before[0], "method") != "notifications/future" {
					t.Errorf("the %s call's stream carried %s", who, r.before)
				}
			}
			stream.nextOf(protocol.ToolsChanged)
			listen.nextOf(protocol.ToolsChanged)
		})
	}
}

// Each session on a shared connection gets the updates of its own
// subscriptions, and the server is told to unsubscribe when the last session
// has left.
func TestSubscriptionsOnASharedConnection(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "legacy")
	s.serve = func(q *query) { q.result(`{}`) }
	h := build(t, []Server{s.server(instances("shared"))})
	ann, bob := h.legacy("/mcp/s", "token:ann", `{}`), h.legacy("/mcp/s", "token:bob", `{}`)
	a, b := ann.listen(), bob.listen()
	ann.call("resources/subscribe", `{"uri":"file:///ann"}`)
	ann.call("resources/subscribe", `{"uri":"file:///both"}`)
	bob.call("resources/subscribe", `{"uri":"file:///both"}`)
	c := s.open()[1]
	c.tell(protocol.ResourceUpdated, `{"uri":"file:///ann"}`)
	c.tell("notifications/message", `{"level":"info","data":"of somebody's call"}`)
	c.tell(protocol.ResourceUpdated, `{"uri":"file:///both"}`)
	equal(t, "ann", text(a.next(), "params", "uri")+" "+text(a.next(), "params", "uri"), "file:///ann file:///both")
	equal(t, "bob", text(b.next(), "params", "uri"), "file:///both")
	ann.call("resources/unsubscribe", `{"uri":"file:///both"}`)
	if n := len(s.got("resources/unsubscribe")); n != 0 {
		t.Error("the server was told to unsubscribe while another session is subscribed")
	}
	c.tell(protocol.ResourceUpdated, `{"uri":"file:///both"}`)
	equal(t, "bob still hears", text(b.next(), "params", "uri"), "file:///both")
	bob.call("resources/unsubscribe", `{"uri":"file:///both"}`)
	s.last("resources/unsubscribe")
	a.silent()
}

// A listener that reads slowly gets the same change once. One with too many
// different changes is cut off, so that no other listener waits for it.
func TestSlowListener(t *testing.T) {
	t.Parallel()
	s := &subscription{wake: make(chan struct{}, 1), granted: new(subscribe.Filter)}
	for range 10 {
		s.put(upstream.Event{Method: protocol.ToolsChanged})
		s.put(upstream.Event{Method: protocol.ResourceUpdated, Params: []byte(`{"uri":"a"}`)})
		s.put(upstream.Event{Method: protocol.ResourceUpdated, Params: []byte(`{"uri":"b"}`)})
	}
	if n := len(s.take()); n != 3 {
		t.Errorf("%d events wait", n)
	}
	h := build(t, nil)
	full := &subscription{from: &h.relay.listens, x: exchangeOf("uid:1000"), wake: make(chan struct{}, 1), granted: new(subscribe.Filter)}
	for i := range 2 * queued {
		full.put(upstream.Event{Method: protocol.ResourceUpdated, Params: []byte(fmt.Sprintf(`{"uri":"%d"}`, i))})
	}
	if n := len(full.take()); n != queued || !full.cut {
		t.Errorf("%d events wait, cut %v", n, full.cut)
	}
}

// A legacy session gets no change of a server that policy denies it, and an
// error if a modern server does not honour a subscription.
func TestStandaloneStreamHearsOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.onListen = func(*query) string { return `{"toolsListChanged":true}` }
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	stream := c.listen()
	eventually(t, "listens", func() bool { return s.listening() == 1 })
	equal(t, "refused", field(c.call("resources/subscribe", `{"uri":"file:///a"}`), "error"), `{"code":-32602,"message":"Resource not found"}`)
	equal(t, "denied", code(h.legacy("/mcp/s", "token:c tool:s/echo", `{}`).call("resources/subscribe", `{"uri":"file:///a"}`)), "1403")
	eventually(t, "one listen", func() bool { return s.listening() == 1 })
	h.gate.SetPolicy(policytest.New(t, 1000, nil))
	s.change(protocol.ToolsChanged, `{}`)
	stream.silent()
	h.gate.SetPolicy(policytest.New(t, 1000, h.rules))
	s.change(protocol.ToolsChanged, `{}`)
	stream.nextOf(protocol.ToolsChanged)
}

// tellListeners sends a notification on the listens that ask for uri.
func (s *script) tellListeners(uri, method, params string) {
	for _, c := range s.open() {
		c.mu.Lock()
		listens := append([]*query(nil), c.listens...)
		c.mu.Unlock()
		for _, q := range listens {
			if strings.Contains(q.raw, uri) {
				q.tag(method, params)
			}
		}
	}
}
