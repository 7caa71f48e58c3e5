package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/overload"
	"github.com/doorward/doorward/test/policytest"
)

const everyList = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`

func subscriptionID(msg string) string { return field(msg, "params", "_meta", wire.MetaSubscription) }

func TestListenOnOneServer(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, era := range []string{"modern", "legacy"} {
			t.Run(era+" "+kind, func(t *testing.T) {
				t.Parallel()
				s := start(t, "s", era)
				h := build(t, []Server{s.server()})
				m := h.modern("/mcp/s", "uid:1000")
				m.last = 41
				r, ack := m.subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["file:///a"],"future":true}`)
				honoured := map[string]string{"legacy": `}`, "modern": `,"future":true}`}[era]
				equal(t, "ack", field(ack, "params", "notifications"), `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]`+honoured)
				equal(t, "id", subscriptionID(ack), "42")
				if era == "legacy" {
					equal(t, "subscribed", string(s.last("resources/subscribe").Params), `{"uri":"file:///a"}`)
				}
				s.change(protocol.PromptsChanged, `{}`) // not asked for
				s.change(protocol.ResourceUpdated, `{"uri":"file:///b"}`)
				s.change("notifications/future", `{"f":1.0}`)
				if era == "modern" {
					future := r.next()
					equal(t, "what Doorward does not know", text(future, "method")+field(future, "params", "f")+subscriptionID(future), "notifications/future1.042")
				}
				s.change(protocol.ResourceUpdated, `{"uri":"file:///a","x":1.0,"_meta":{"y":1.0}}`)
				update := r.next()
				equal(t, "update", field(update, "method")+field(update, "params", "uri")+field(update, "params", "x")+field(update, "params", "_meta", "y")+subscriptionID(update), `"notifications/resources/updated""file:///a"1.01.042`)
				s.change(protocol.ToolsChanged, `{}`)
				changed := r.next()
				equal(t, "change", field(changed, "method")+subscriptionID(changed), `"`+protocol.ToolsChanged+`"42`)
				r.stop()
				if era == "legacy" {
					equal(t, "unsubscribed", string(s.last("resources/unsubscribe").Params), `{"uri":"file:///a"}`)
				} else {
					eventually(t, "the server's listen ends", func() bool { return s.listening() == 0 })
				}
				equal(t, "outcome", h.outcome(h.decided("subscriptions/listen", "s")), "ended")
				again, _ := m.subscribe(everyList) // and finds nothing of the one before
				s.change(protocol.PromptsChanged, `{}`)
				equal(t, "the first change", text(again.next(), "method"), protocol.PromptsChanged)
			})
		}
	}
}

// A listen is acknowledged after its server has acknowledged it, and nothing comes before
// that.
func TestListenIsAcknowledgedAfterTheServer(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.onListen = func(q *query) string {
		q.tag(protocol.ToolsChanged, `{}`)
		q.arrive()
		return `{"promptsListChanged":true}`
	}
	h := build(t, []Server{s.server()})
	got := make(chan *reply)
	go func() {
		got <- h.modern("/mcp/s", "uid:1000").begin("subscriptions/listen", `{"notifications":`+everyList+`}`)
	}()
	s.last("subscriptions/listen")
	select {
	case <-got:
		t.Fatal("acknowledged before the server")
	case <-time.After(50 * time.Millisecond):
	}
	s.proceed <- struct{}{}
	r := <-got
	equal(t, "ack", field(r.next(), "params", "notifications"), `{"promptsListChanged":true}`)
	equal(t, "then the change", text(r.next(), "method"), protocol.ToolsChanged)
}

// Each of several listens of a client gets what it asked for under its own id. The server
// has one listen for all.
func TestSeveralListensOnOneServer(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "modern")
			s.onListen = func(q *query) string {
				q.mu.Lock()
				defer q.mu.Unlock()
				for _, x := range q.listens {
					if kind == "stdio" && x.ctx.Err() == nil {
						t.Error("a second listen on one pipe")
					}
				}
				return string(rawjson.Get(q.Params, "notifications"))
			}
			h := build(t, []Server{s.server()})
			m := h.modern("/mcp/s", "uid:1000")
			tools, _ := m.subscribe(`{"toolsListChanged":true}`)
			one, _ := m.subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["file:///1"]}`)
			two, _ := m.subscribe(`{"resourceSubscriptions":["file:///2"]}`)
			eventually(t, "one listen for all", func() bool { return s.listening() == 1 })
			s.change(protocol.ResourceUpdated, `{"uri":"file:///1"}`)
			s.change(protocol.ResourceUpdated, `{"uri":"file:///2"}`)
			s.change(protocol.ToolsChanged, `{}`)
			for _, c := range []struct {
				r         *reply
				id, wants string
			}{{tools, "1", "tools"}, {one, "2", "1 tools"}, {two, "3", "2"}} {
				want := map[string]bool{}
				for _, w := range strings.Fields(c.wants) {
					want[w] = true
				}
				for len(want) > 0 {
					msg := c.r.next()
					equal(t, "id", subscriptionID(msg), c.id)
					what := strings.TrimPrefix(text(msg, "params", "uri"), "file:///")
					if text(msg, "method") == protocol.ToolsChanged {
						what = "tools"
					}
					if !strings.Contains(c.wants, what) {
						t.Errorf("listen %s heard %s", c.id, msg)
					}
					delete(want, what)
				}
			}
			equal(t, "union", field(s.last("subscriptions/listen").raw, "params", "notifications", "resourceSubscriptions"), `["file:///1","file:///2"]`)
			one.stop()
			two.stop()
			s.change(protocol.ToolsChanged, `{}`)
			tools.nextOf(protocol.ToolsChanged)
			tools.stop()
			eventually(t, "the last one ends it", func() bool { return s.listening() == 0 })
		})
	}
}

// A listen goes on when its server restarts or ends the listen: it is opened again, and
// its client is told to look again.
func TestListenSurvivesARestart(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", era)
			h := build(t, []Server{s.server()})
			r, _ := h.modern("/mcp/s", "uid:1000").subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`)
			eventually(t, "the child of the probe is gone", func() bool { return len(s.open()) == 1 })
			before := s.connected()
			s.open()[0].close()
			equal(t, "look again", text(r.next(), "method"), protocol.ToolsChanged)
			equal(t, "at the resource too", text(r.next(), "params", "uri"), "file:///a")
			eventually(t, "the second child", func() bool { return s.connected() == before+1 && len(s.open()) == 1 })
			s.change(protocol.ResourceUpdated, `{"uri":"file:///a","again":true}`)
			for field(r.next(), "params", "again") == "" {
			}
		})
	}
	t.Run("a modern server that ends its listen", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "modern")
		h := build(t, []Server{s.server()})
		r, _ := h.modern("/mcp/s", "uid:1000").subscribe(`{"toolsListChanged":true}`)
		c := s.open()[0]
		c.mu.Lock()
		q := c.listens[0]
		c.mu.Unlock()
		q.result(`{"resultType":"complete"}`)
		c.cancel(string(q.ID))
		equal(t, "look again", text(r.next(), "method"), protocol.ToolsChanged)
		eventually(t, "listens again", func() bool { return s.listening() == 1 })
		s.change(protocol.ToolsChanged, `{}`)
		equal(t, "a change", text(r.next(), "method"), protocol.ToolsChanged)
	})
}

func TestListenRefused(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	refuse := true
	s.serve = nil
	s.onListen = func(q *query) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if refuse {
			return ""
		}
		return everyList
	}
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/s", "uid:1000")
	_, ack := m.subscribe(everyList)
	equal(t, "nothing is honoured", field(ack, "params", "notifications"), `{}`)
	s.mu.Lock()
	refuse = false
	s.mu.Unlock()
	_, ack = m.subscribe(everyList)
	equal(t, "the next one asks again", field(ack, "params", "notifications"), everyList)
	for _, params := range []string{`{}`, `{"notifications":[]}`, `{"notifications":null}`} {
		equal(t, params, code(m.call("subscriptions/listen", params)), "-32602")
	}
	equal(t, "a legacy client has no such method", code(h.legacy("/mcp/s", "uid:1000", `{}`).call("subscriptions/listen", `{"notifications":{}}`)), "-32601")
	down := web(t, "down", "modern")
	h = build(t, []Server{down.server(func(_ *Server, d *upstream.Definition) { d.URL = "http://127.0.0.1:1/" })})
	r := h.modern("/mcp/down", "uid:1000").begin("subscriptions/listen", `{"notifications":{}}`)
	if end := r.end(); r.status != 502 || code(end) != "1502" {
		t.Errorf("a server that is down: %d %s", r.status, end)
	}
}

func TestListenOnTheAggregate(t *testing.T) {
	t.Parallel()
	a, b := web(t, "alpha", "modern"), stdio(t, "beta", "legacy")
	h := build(t, []Server{a.server(), b.server()})
	m := h.modern("/mcp", "uid:1000")
	r, ack := m.subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["doorward://alpha/file:///1","doorward://beta/file:///2","doorward://ghost/x","bare"]}`)
	equal(t, "ack", field(ack, "params", "notifications"), `{"toolsListChanged":true,"resourceSubscriptions":["doorward://alpha/file:///1","doorward://beta/file:///2"]}`)
	equal(t, "alpha's", field(a.last("subscriptions/listen").raw, "params", "notifications", "resourceSubscriptions"), `["file:///1"]`)
	equal(t, "beta's", string(b.last("resources/subscribe").Params), `{"uri":"file:///2"}`)
	a.change(protocol.ResourceUpdated, `{"uri":"file:///2"}`) // beta's, not alpha's
	a.change(protocol.ResourceUpdated, `{"uri":"file:///1"}`)
	equal(t, "update", text(r.next(), "params", "uri"), "doorward://alpha/file:///1")
	b.change(protocol.ResourceUpdated, `{"uri":"file:///2"}`)
	equal(t, "update", text(r.next(), "params", "uri"), "doorward://beta/file:///2")
	b.change(protocol.ToolsChanged, `{}`)
	equal(t, "change", text(r.next(), "method"), protocol.ToolsChanged)
}

// A server that hangs delays the acknowledgement for a moment only.
func TestHangingServerDoesNotHoldAListenUp(t *testing.T) {
	t.Parallel()
	a, bad := web(t, "alpha", "modern"), stdio(t, "bad", "modern")
	bad.refuse = func(q *query) bool { q.arrive(); return false }
	h := build(t, []Server{a.server(), bad.server()})
	began := time.Now()
	r, _ := h.modern("/mcp", "uid:1000").subscribe(everyList)
	if d := time.Since(began); d > ackTime+3*time.Second+overload.Late() {
		t.Errorf("acknowledged after %s", d)
	}
	a.change(protocol.ToolsChanged, `{}`)
	r.nextOf(protocol.ToolsChanged)
	close(bad.proceed)
	r.nextOf(protocol.PromptsChanged) // it came up: look again
	bad.change(protocol.ResourcesChanged, `{}`)
	r.nextOf(protocol.ResourcesChanged)
}

// A listen gets nothing of another principal's connection and nothing that policy forbids,
// also after the policy changes.
func TestListenHearsOnlyWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "modern")
	h := build(t, []Server{s.server()})
	ann, _ := h.modern("/mcp/s", "token:ann").subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["file:///ann"]}`)
	bob, _ := h.modern("/mcp/s", "token:bob").subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["file:///ann"]}`)
	eventually(t, "a child for each", func() bool { return len(s.open()) == 2 })
	first := s.open()[0]
	first.mu.Lock()
	q := first.listens[0]
	first.mu.Unlock()
	q.tag(protocol.ResourceUpdated, `{"uri":"file:///ann"}`)
	ann.next()
	q.tag(protocol.ToolsChanged, `{}`)
	ann.next()
	bob.silent()

	scoped, ack := h.modern("/mcp/s", "token:c tool:s/echo").subscribe(`{"toolsListChanged":true,"resourceSubscriptions":["file:///c"]}`)
	equal(t, "no resource that it may not read", field(ack, "params", "notifications"), `{"toolsListChanged":true}`)
	h.gate.SetPolicy(policytest.New(t, 1000, nil))
	s.change(protocol.ToolsChanged, `{}`)
	s.change(protocol.ResourceUpdated, `{"uri":"file:///ann"}`)
	for _, r := range []*reply{ann, bob, scoped} {
		r.silent()
	}
	h.gate.SetPolicy(policytest.New(t, 1000, h.rules))
	s.change(protocol.ToolsChanged, `{}`)
	bob.next()
}

// When Doorward stops, or the server is taken out of the configuration, a
// client is told that its listen is over.
func TestListenEndsGracefully(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/s", "uid:1000")
	r, _ := m.subscribe(everyList)
	h.relay.SetServers(nil)
	over := r.next()
	equal(t, "cancelled", text(over, "method")+field(over, "params", "requestId")+subscriptionID(over), "notifications/cancelled11")
	end := r.next()
	equal(t, "result", field(end, "id")+text(end, "result", "resultType"), "1complete")
	h = build(t, []Server{s.server()})
	r, _ = h.modern("/mcp", "uid:1000").subscribe(everyList)
	h.relay.Close()
	r.nextOf("notifications/cancelled")
	contains(t, "result", r.next(), `"resultType":"complete"`)
}

// A listen gets the changes of the tasks that it names and its principal made, under the
// ids that its client knows. Their questions are decided.
func TestListenToTasks(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, path := range []string{"/mcp/s", "/mcp"} {
			t.Run(kind+" "+path, func(t *testing.T) {
				t.Parallel()
				s := start(t, "s", "modern")
				s.serve = func(q *query) {
					q.result(`{"resultType":"task","taskId":"inner-%d","status":"working"}`, len(s.got("tools/call")))
				}
				h := build(t, []Server{s.server()})
				m, bob := h.modern(path, "uid:1000"), h.modern(path, "token:bob")
				m.caps = elicits
				name := map[string]string{"/mcp/s": "make", "/mcp": "s__make"}[path]
				mine, other := text(m.tool(name, ""), "result", "taskId"), text(bob.tool(name, ""), "result", "taskId")
				filter := `{"taskIds":["` + mine + `","` + other + `","inner-2"]}`
				r, ack := m.subscribe(filter)
				equal(t, "ack", field(ack, "params", "notifications"), `{"taskIds":["`+mine+`"]}`)
				equal(t, "asked of the server", field(string(s.last("subscriptions/listen").Params), "notifications", "taskIds"), `["inner-1"]`)
				s.change(protocol.TaskChanged, `{"taskId":"inner-2","status":"completed"}`)
				s.change(protocol.TaskChanged, `{"taskId":"inner-1","status":"input_required","inputRequests":{"k":{"method":"sampling/createMessage","params":{}}}}`)
				s.change(protocol.TaskChanged, `{"taskId":"inner-1","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}}}`)
				got := r.next()
				equal(t, "question", text(got, "params", "taskId")+text(got, "params", "inputRequests", "k", "params", "message"), mine+"[s] who?")
				equal(t, "decided", h.outcome(h.decided(policy.AskElicitation, "s")), "asked")
				s.change(protocol.TaskChanged, `{"taskId":"inner-1","status":"completed","x":1.0}`)
				got = r.next()
				equal(t, "task", text(got, "method")+text(got, "params", "taskId")+field(got, "params", "x"), protocol.TaskChanged+mine+"1.0")
				h.decided("tasks/get", "s")
			})
		}
	}
}

// On a connection that principals share, a member of a filter that Doorward does not know
// is not honoured: what comes of it could be another principal's.
func TestUnknownFilterOfASharedServer(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	h := build(t, []Server{s.server(instances("shared"))})
	alice, ack := h.modern("/mcp/s", "token:alice").subscribe(`{"toolsListChanged":true,"future":"alice"}`)
	equal(t, "ack", field(ack, "params", "notifications"), `{"toolsListChanged":true}`)
	bob, _ := h.modern("/mcp/s", "token:bob").subscribe(`{"toolsListChanged":true,"future":"bob"}`)
	s.change("notifications/future", `{"for":"bob"}`)
	s.change(protocol.ToolsChanged, `{}`)
	equal(t, "alice", text(alice.next(), "method"), protocol.ToolsChanged)
	equal(t, "bob", text(bob.next(), "method"), protocol.ToolsChanged)
	for _, q := range s.got("subscriptions/listen") {
		equal(t, "asked of the server", field(string(q.Params), "notifications", "future"), "")
	}
}
