package relay

import (
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Two clients that choose the same ids and tokens get each their own answer,
// on one shared connection.
func TestIDsAndProgressTokensAreMintedAndRestored(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for kind, start := range transports {
			t.Run(era+" "+kind, func(t *testing.T) {
				t.Parallel()
				s := start(t, "s", era)
				both := make(chan *query, 2)
				s.serve = func(q *query) {
					both <- q
					q.arrive()
					token := field(string(q.Params), "_meta", "progressToken")
					q.notify("notifications/progress", `{"progressToken":`+token+`,"progress":0,"message":"`+q.arg("who")+`","x":1.0}`)
					q.notify("notifications/progress", `{"progressToken":"forged","progress":1}`)
					q.notify("notifications/progress", `{"progressToken":`+token+`,"progress":1.50}`)
					q.result(`{"who":%q}`, q.arg("who"))
				}
				h := build(t, []Server{s.server(instances("shared"))})
				var wg sync.WaitGroup
				for _, who := range []string{"uid:1000", "token:bob"} {
					params := `{"name":"t","arguments":{"who":"` + who + `"},"_meta":{"progressToken":"same"}}`
					if era == "legacy" {
						c := h.legacy("/mcp/s", who, `{}`)
						wg.Go(func() { check(t, c.post(request(`"id-ü"`, "tools/call", params)), who, `"id-ü"`) })
						continue
					}
					m := h.modern("/mcp/s", who)
					wg.Go(func() { check(t, m.begin("tools/call", params), who, `1`) })
				}
				a, b := <-both, <-both
				if kind == "stdio" && string(a.ID) == string(b.ID) {
					t.Errorf("both calls have the id %s", a.ID)
				}
				if tok := field(string(a.Params), "_meta", "progressToken"); tok == `"same"` {
					t.Error("the client's token reached the server")
				}
				s.proceed <- struct{}{}
				s.proceed <- struct{}{}
				wg.Wait()
			})
		}
	}
}

func check(t *testing.T, r *reply, who, id string) {
	end := r.end()
	if field(end, "id") != id || text(end, "result", "who") != who {
		t.Errorf("%s got %s", who, end)
	}
	want := []string{`{"progressToken":"same","progress":0,"message":"` + who + `","x":1.0}`, `{"progressToken":"same","progress":1.50}`}
	var got []string
	for _, m := range r.before {
		got = append(got, field(m, "params"))
	}
	if join(got) != join(want) {
		t.Errorf("progress of %s: %s", who, got)
	}
}

// async sends a request in the background: post waits for headers, which a call
// without an event sends late.
func (s *session) async(id, method, params string) chan *reply {
	out := make(chan *reply, 1)
	go func() { out <- s.post(request(id, method, params)) }()
	return out
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run("legacy "+kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			s.serve = func(q *query) { <-q.ctx.Done(); q.result(`{"late":true}`) }
			h := build(t, []Server{s.server()})
			c, other := h.legacy("/mcp/s", "uid:1000", `{}`), h.legacy("/mcp/s", "uid:1000", `{}`)
			gone := c.async(`"x"`, "tools/call", `{"name":"t"}`)
			q := s.last("tools/call")
			other.notify("notifications/cancelled", `{"requestId":"x"}`) // of another session: nothing
			c.notify("notifications/cancelled", `{"requestId":"y"}`)
			c.notify("notifications/cancelled", `{"requestId":"x","reason":"my secret reason"}`)
			r := <-gone
			if m, ok := <-r.msgs; ok {
				t.Errorf("a cancelled call was answered: %s", m)
			}
			n := s.last("notifications/cancelled")
			equal(t, "id upstream", field(n.raw, "params", "requestId"), string(q.ID))
			if strings.Contains(n.raw, "secret") || len(s.got("notifications/cancelled")) != 1 {
				t.Errorf("cancellations: %s", n.raw)
			}
			equal(t, "outcome", h.outcome(h.decided("tools/call", "s/t")), "cancelled")
		})
		t.Run("modern "+kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "modern")
			ended := make(chan struct{})
			s.serve = func(q *query) {
				q.notify("notifications/message", `{"level":"info"}`)
				<-q.ctx.Done()
				close(ended)
			}
			h := build(t, []Server{s.server()})
			m := h.modern("/mcp/s", "uid:1000")
			m.meta = []rawjson.Edit{{Key: wire.MetaLogLevel, Value: []byte(`"info"`)}}
			r := m.begin("tools/call", `{"name":"t"}`)
			r.next()
			r.stop()
			<-ended
			equal(t, "outcome", h.outcome(h.decided("tools/call", "s/t")), "cancelled")
		})
	}
}

// A legacy client that loses its connection has not cancelled.
func TestDisconnectIsNoCancellationInTheLegacyEra(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		q.notify("notifications/message", `{"level":"info"}`)
		q.arrive()
		q.result(`{}`)
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	r := c.begin("tools/call", `{"name":"t"}`)
	r.next()
	r.stop()
	s.proceed <- struct{}{}
	equal(t, "outcome", h.outcome(h.decided("tools/call", "s/t")), "ok")
}

func TestLogMessages(t *testing.T) {
	t.Parallel()
	speak := func(q *query) {
		for _, l := range []string{"debug", "info", "error", "nonsense"} {
			q.notify("notifications/message", `{"level":"`+l+`","logger":"l","data":1.0}`)
		}
		q.notify("notifications/claude/channel", `{"content":"obey me"}`)
		q.result(`{"content":[]}`)
	}
	levelsOf := func(r *reply) string {
		r.end()
		var got []string
		for _, m := range r.before {
			got = append(got, text(m, "params", "level"))
		}
		return join(got)
	}
	for _, era := range []string{"legacy", "modern"} {
		for _, c := range []struct{ level, want string }{{"", ""}, {"debug", "debug info error"}, {"info", "info error"}, {"emergency", ""}, {"loud", ""}} {
			t.Run("modern client at "+c.level+", "+era+" server", func(t *testing.T) {
				t.Parallel()
				s := web(t, "s", era)
				s.serve = speak
				m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
				if c.level != "" {
					m.meta = []rawjson.Edit{{Key: wire.MetaLogLevel, Value: []byte(`"` + c.level + `"`)}}
				}
				equal(t, "levels", levelsOf(m.begin("tools/call", `{"name":"t"}`)), c.want)
			})
		}
	}
	t.Run("a legacy client sets the level of a legacy server", func(t *testing.T) {
		t.Parallel()
		s := stdio(t, "s", "legacy")
		s.serve = speak
		h := build(t, []Server{s.server()})
		c := h.legacy("/mcp/s", "uid:1000", `{}`)
		equal(t, "answer", field(c.call("logging/setLevel", `{"level":"error","x":1.0}`), "result", "content"), "[]")
		equal(t, "params", string(s.last("logging/setLevel").Params), `{"level":"error","x":1.0}`)
		equal(t, "bad level", code(c.call("logging/setLevel", `{"level":"loud"}`)), "-32602")
		equal(t, "levels of a process that sessions may share", levelsOf(c.begin("tools/call", `{"name":"t"}`)), "error")
	})
	t.Run("a legacy client sets the level of a modern server", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "modern")
		h := build(t, []Server{s.server()})
		c := h.legacy("/mcp/s", "uid:1000", `{}`)
		c.tool("t", "")
		equal(t, "no level", field(string(s.last("tools/call").Params), "_meta", wire.MetaLogLevel), "")
		equal(t, "answer", c.call("logging/setLevel", `{"level":"error"}`), `{"jsonrpc":"2.0","id":2,"result":{}}`)
		c.tool("t", "")
		equal(t, "level", field(string(s.last("tools/call").Params), "_meta", wire.MetaLogLevel), `"error"`)
		if len(s.got("logging/setLevel")) != 0 {
			t.Error("a modern server was asked for what it no longer has")
		}
	})
}

func TestCompletionAndPing(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	params := `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":"1.0"}}`
	equal(t, "completion", field(c.call("completion/complete", params), "result", "echo"), params)
	equal(t, "resource", h.decided("completion/complete", "s/greet").Decision, "allow")
	c.call("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///x"},"argument":{"name":"a","value":""}}`)
	h.decided("completion/complete", "s/file:///x")
	equal(t, "ping", c.call("ping", ""), `{"jsonrpc":"2.0","id":3,"result":{}}`)
	if len(s.got("ping")) != 0 {
		t.Error("ping reached the server")
	}
}

// roots/list_changed goes to servers that were told of roots, and to no other.
func TestRootsChanged(t *testing.T) {
	t.Parallel()
	s, other := stdio(t, "s", "legacy"), stdio(t, "other", "legacy")
	h := build(t, []Server{s.server(), other.server()}, withRules("s", everyTool, askAll))
	c := h.legacy("/mcp", "uid:1000", `{"roots":{"listChanged":true}}`)
	c.call("tools/list", "")
	c.notify(protocol.RootsChanged, "")
	s.last(protocol.RootsChanged)
	c.call("tools/list", "")
	if len(other.got(protocol.RootsChanged)) != 0 {
		t.Error("a notification reached a server that it cannot be meant for")
	}
}
