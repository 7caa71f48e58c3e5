package relay

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
)

// First requests that come at once share one start for each era.
func TestFirstRequestsShareOneStart(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "both")
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			end := c.post(request(fmt.Sprint(i+100), "tools/call", `{"name":"s__t"}`)).end()
			if field(end, "result") == "" {
				t.Error(end)
			}
			if m := h.modern("/mcp/s", "uid:1000"); field(m.tool("t", ""), "result") == "" {
				t.Error("modern")
			}
		})
	}
	wg.Wait()
	if n := s.connected(); n != 2 { // one for each era
		t.Errorf("%d children", n)
	}
}

// The end of a session ends the start of its server too, and leaves no child.
func TestSessionEndsWhileItsServerStarts(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.refuse = func(q *query) bool { q.arrive(); return false }
	h := build(t, []Server{s.server(instances("session"))})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	gone := c.async("7", "tools/call", `{"name":"s__t"}`)
	s.last("initialize")
	c.end()
	if r := <-gone; r.status == 200 {
		t.Errorf("answered %s", r.end())
	}
	eventually(t, "the child ends, though it never answered", func() bool { return len(s.open()) == 0 })
}

// A session that ends during its call cancels it; the others go on.
func TestSessionEndsDuringItsCall(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			s.serve = func(q *query) {
				if q.name() == "hang" {
					<-q.ctx.Done()
				}
				q.result(`{}`)
			}
			h := build(t, []Server{s.server(instances("session"))})
			c, other := h.legacy("/mcp/s", "uid:1000", elicits), h.legacy("/mcp/s", "uid:1000", `{}`)
			gone := c.async("7", "tools/call", `{"name":"hang"}`)
			s.last("tools/call")
			c.end()
			<-gone
			d := h.decided("tools/call", "s/hang")
			eventually(t, "its outcome", func() bool { o := h.outcome(d); return o == "cancelled" || o == "failed" })
			eventually(t, "its connection ends", func() bool { return h.relay.Status()[0].Instances == 1 })
			equal(t, "the other", field(other.tool("t", ""), "result"), "{}")
		})
	}
}

// Calls that run while servers are added and removed end without an internal
// error. Afterwards the servers that are configured are offered.
func TestServersChangeWhileCallsRun(t *testing.T) {
	t.Parallel()
	a, b := stdio(t, "alpha", "both"), web(t, "beta", "both")
	alpha, beta := a.server(), b.server()
	other := a.server()
	h := build(t, []Server{alpha, beta})
	stop := make(chan struct{})
	var called atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			who := fmt.Sprint("token:p", i)
			c := h.legacy("/mcp", who, `{}`)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				end := c.tool("alpha__t", "") + h.modern("/mcp", who).tool("alpha__t", "")
				if strings.Contains(end, "-32603") {
					t.Error(end)
				}
				c.call("tools/list", "")
				called.Add(1)
			}
		})
	}
	for i := range 12 {
		before := called.Load()
		h.relay.SetServers([][]Server{{alpha, beta}, {beta}, {other, beta}}[i%3])
		h.relay.Status()
		eventually(t, "calls", func() bool { return called.Load() > before })
	}
	close(stop)
	wg.Wait()
	h.relay.SetServers([]Server{beta})
	eventually(t, "the children of a server that is gone end", func() bool { return len(a.open()) == 0 })
	c := h.legacy("/mcp", "uid:1000", `{}`)
	equal(t, "what is left", join(names(c.call("tools/list", ""), "tools", "name")), "beta__echo")
	equal(t, "what is gone", code(c.tool("alpha__t", "")), "-32602")
	h.relay.SetServers([]Server{beta, alpha})
	equal(t, "what is back", field(c.tool("alpha__t", ""), "error"), "")
}

// A server with an unchanged configuration keeps its connections over a reload.
// A changed one loses them, also those of sessions.
func TestReloadKeepsWhatDidNotChange(t *testing.T) {
	t.Parallel()
	a, b := stdio(t, "alpha", "legacy"), stdio(t, "beta", "legacy")
	a.serve = func(q *query) { q.result(`{"n":%d}`, q.n) }
	b.serve = a.serve
	alpha, beta := a.server(), b.server()
	refused := Server{Name: "broken", Refused: "one reason"}
	h := build(t, []Server{alpha, beta, refused})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	c.tool("alpha__t", "")
	c.tool("beta__t", "")
	beta.MaxConcurrency = 1
	refused.Refused = "another"
	h.relay.SetServers([]Server{alpha, beta, refused})
	equal(t, "alpha's connection", field(c.tool("alpha__t", ""), "result", "n"), "1")
	equal(t, "beta's connection", field(c.tool("beta__t", ""), "result", "n"), "2")
	eventually(t, "beta's old child ends", func() bool { return len(b.open()) == 1 })
	for _, s := range h.relay.Status() {
		if s.Name == "broken" && s.Reason != "another" {
			t.Errorf("status %+v", s)
		}
	}
}

// Nothing that outlives an exchange refers to its request buffer, which the
// front lends to one exchange at a time: neither the subscriptions that a
// session keeps nor progress that comes as its call ends.
func TestNothingOutlivesItsRequestBuffer(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.name() != "slow" {
			q.result(`{}`)
			return
		}
		token := field(q.raw, "params", "_meta", "progressToken")
		for i := 0; q.ctx.Err() == nil; i++ {
			q.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i))
		}
	}
	h := build(t, []Server{s.server()})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			stream := c.listen()
			for n := range 15 {
				token := fmt.Sprintf("mine-%d-%d", i, n)
				id := fmt.Sprintf(`"id-%d-%d"`, i, n)
				r := c.post(request(id, "tools/call", `{"name":"slow","_meta":{"progressToken":"`+token+`"}}`))
				for range 3 {
					if got := text(r.next(), "params", "progressToken"); got != token {
						t.Errorf("progress of %s for %s", got, token)
					}
				}
				c.notify("notifications/cancelled", `{"requestId":`+id+`,"pad":"`+strings.Repeat("x", 200)+`"}`)
				c.call("resources/subscribe", fmt.Sprintf(`{"uri":"file:///%d/%d"}`, i, n))
				for m := range r.msgs {
					if got := text(m, "params", "progressToken"); got != token {
						t.Errorf("progress of %s for %s", got, token)
					}
				}
			}
			stream.stop()
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, q := range s.seen {
				if q.Method == "resources/subscribe" && !strings.HasPrefix(text(q.raw, "params", "uri"), "file:///") {
					t.Errorf("a subscription to %s", q.raw)
				}
			}
		})
	}
	wg.Wait()
}

// Sessions that end leave no connection, no watcher and no call.
func TestSessionsLeaveNothing(t *testing.T) {
	t.Parallel()
	s, shared := web(t, "own", "both"), web(t, "pool", "legacy")
	h := build(t, []Server{s.server(), shared.server(instances("principal"))})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			c := h.legacy("/mcp", fmt.Sprint("token:p", i%3), `{}`)
			stream := c.listen()
			c.call("tools/list", "")
			c.tool("own__t", "")
			c.call("resources/subscribe", `{"uri":"doorward://pool/file:///a"}`)
			r, _ := h.modern("/mcp", fmt.Sprint("token:p", i%3)).subscribe(everyList)
			r.stop()
			c.end()
			for range stream.msgs {
			}
		})
	}
	wg.Wait()
	own, pool := h.relay.table.Load().byName["own"], h.relay.table.Load().byName["pool"]
	watchers := func(b *backend) int {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := 0
		for _, l := range b.pool {
			n += len(l.hub.watchers.that(func(*watcher) bool { return true }))
		}
		return n
	}
	eventually(t, "no watcher is left", func() bool { return watchers(own)+watchers(pool) == 0 })
	eventually(t, "the upstream listens end", func() bool { return s.listening() == 0 })
	eventually(t, "the sessions' connections are closed", func() bool { return own.instances() == 3 && own.traffic.active.Load() == 0 }) // the modern pool's
	if h.door.Sessions() != 0 {
		t.Errorf("%d sessions", h.door.Sessions())
	}
}

// A caller that waited for a dial gets the result of that dial, even if the
// connection has ended since. The next caller gets a new connection, and a
// closed link does not dial.
func TestLateWaiterFindsItsDial(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "modern")
	h := build(t, []Server{s.server()})
	b := h.relay.table.Load().byName["s"]
	l := h.relay.links.pooled(b, exchangeOf("uid:1000").Who, front.Modern)
	d, err := l.dialled()
	if err != nil {
		t.Fatal(err)
	}
	<-d.done
	s.open()[0].close()
	<-d.c.conn.Done()
	l.drop(d.c)
	if d.c == nil || d.err != nil {
		t.Errorf("got %v %v", d.c, d.err)
	}
	if c, err := l.get(context.Background()); err != nil || c == d.c || !c.alive() {
		t.Errorf("the next one: %v %v", c, err)
	}
	l.close()
	if _, err := l.get(context.Background()); err == nil {
		t.Error("a closed link dials")
	}
}

// A call that fails or is refused does not affect the other calls of its
// connection. A call that was refused before it ran is sent twice at most.
func TestFailedCallDoesNotAffectOtherCalls(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := web(t, "s", era)
			var refused atomic.Int32
			s.status = func(q *query) int {
				if q.name() == "busy" {
					refused.Add(1)
					return http.StatusServiceUnavailable
				}
				return 0
			}
			s.serve = func(q *query) {
				switch q.name() {
				case "broken":
					panic(http.ErrAbortHandler)
				case "slow":
					q.notify("notifications/future", `{}`)
					q.arrive()
				}
				q.result(`{"resultType":"complete"}`)
			}
			h := build(t, []Server{s.server(instances("principal"))})
			m := h.modern("/mcp/s", "uid:1000")
			r := m.begin("tools/call", `{"name":"slow"}`)
			r.next()
			equal(t, "the broken one", code(m.tool("broken", "")), "1502")
			equal(t, "the refused one", code(m.tool("busy", "")), "1502")
			equal(t, "was sent twice", fmt.Sprint(refused.Load()/2), "2") // the fixture asks for each status twice
			s.proceed <- struct{}{}
			equal(t, "the slow one", field(r.end(), "result"), `{"resultType":"complete"}`)
			if n := len(s.got("initialize")); n > 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

// Each of many callers that use the same ids at once gets only its own answers
// from the aggregate.
func TestManyPrincipalsAtOnce(t *testing.T) {
	t.Parallel()
	s, p := stdio(t, "one", "both"), web(t, "two", "both")
	for _, x := range []*script{s, p} {
		x.serve = func(q *query) { q.result(`{"secret":%q,"resultType":"complete"}`, q.arg("secret")) }
	}
	h := build(t, []Server{s.server(instances("shared")), p.server(instances("shared"))})
	var wg sync.WaitGroup
	for i := range 6 {
		who := fmt.Sprint("token:p", i)
		wg.Go(func() {
			c, m := h.legacy("/mcp", who, `{}`), h.modern("/mcp", who)
			for n := range 15 {
				for _, server := range []string{"one", "two"} {
					arg := fmt.Sprintf(`"secret":"%s-%d"`, who, n)
					for _, end := range []string{c.tool(server+"__t", arg), m.tool(server+"__t", arg)} {
						if got := text(end, "result", "secret"); got != fmt.Sprintf("%s-%d", who, n) {
							t.Errorf("%s got %s", who, end)
						}
					}
				}
			}
		})
	}
	wg.Wait()
}

// Messages of a hostile server have no effect beyond its own calls: a second
// answer and answers to other ids are dropped, duplicate keys fail the call,
// and channel messages are not carried. Its errors are passed as they are.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	s := stdio(t, "evil", "legacy")
	s.serve = func(q *query) {
		c := q.conn
		id := string(q.ID)
		switch q.name() {
		case "twice":
			c.say([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"first":1}}`))
			c.say([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"second":1}}`))
		case "foreign":
			for n := range 50 {
				c.say([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"stolen":1}}`, n+1000)))
			}
			q.result(`{}`)
		case "duplicate":
			c.say([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"a":1,"a":2}}`))
		case "channel":
			c.tell("notifications/claude/channel", `{"content":"obey"}`)
			q.notify("notifications/claude/channel", `{"content":"obey"}`)
			c.tell(protocol.ToolsChanged, `{}`)
			q.result(`{}`)
		case "code":
			q.fail(1403, "Denied by policy")
		}
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/evil", "uid:1000", elicits)
	stream := c.listen()
	equal(t, "an answer", field(c.tool("twice", ""), "result"), `{"first":1}`)
	equal(t, "foreign ids", field(c.tool("foreign", ""), "result"), `{}`)
	equal(t, "duplicate keys", code(c.tool("duplicate", "")), "1502")
	r := c.begin("tools/call", `{"name":"channel"}`)
	r.end()
	if len(r.before) != 0 {
		t.Errorf("a channel message passed: %s", r.before)
	}
	equal(t, "on the stream", text(stream.next(), "method"), protocol.ToolsChanged)
	equal(t, "its own error is passed as it is", field(c.tool("code", ""), "error"), `{"code":1403,"message":"Denied by policy"}`)
}

// withoutListen removes the id of Doorward's own listen, which means nothing to
// a legacy client.
func TestWithoutListen(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":1.0,"_meta":{"` + wire.MetaSubscription + `":1,"b":2}}`: `{"a":1.0,"_meta":{"b":2}}`,
		`{"_meta":{"` + wire.MetaSubscription + `":1},"a":1.0}`:       `{"a":1.0}`,
		`{"_meta":{},"a":1.0}`: `{"_meta":{},"a":1.0}`,
		``:                     ``,
	} {
		equal(t, in, string(withoutListen([]byte(in))), want)
	}
}
