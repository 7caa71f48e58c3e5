package relay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/upstream"
)

func TestCapsOnInstancesAndConcurrency(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) { q.arrive(); q.result(`{}`) }
	h := build(t, []Server{s.server(func(r *Server, _ *upstream.Definition) {
		r.Instances, r.MaxInstances, r.MaxConcurrency = "session", 2, 2
	})})
	a, b := h.legacy("/mcp/s", "uid:1000", `{}`), h.legacy("/mcp/s", "token:bob", `{}`)
	over := &session{house: h, who: "uid:1000", path: "/mcp/s", version: "2025-11-25"}
	r := over.hello0(`{}`)
	refusal := busy(t, h, "a third instance", r, "mcpServers.s.doorward.max_instances")
	equal(t, "outcome of the act that the gate had allowed", h.outcome(record{Seq: refusal.Ref}), "busy")

	one, two := a.async("1", "tools/call", `{"name":"t"}`), b.async("77", "tools/call", `{"name":"t"}`)
	eventually(t, "two calls run", func() bool { return len(s.got("tools/call")) == 2 })
	refusal = busy(t, h, "a third call", b.begin("tools/call", `{"name":"third"}`), "mcpServers.s.doorward.max_concurrency")
	if n := h.count("tools/call", "s/third"); n != 1 || refusal.Resource != "s/third" || refusal.Principal != "token:bob" {
		t.Errorf("%d decisions about a call over the limit: %+v", n, refusal)
	}
	s.proceed <- struct{}{}
	s.proceed <- struct{}{}
	(<-one).end()
	(<-two).end()
	a.end()
	eventually(t, "there is room again", func() bool {
		r := over.hello0(`{}`)
		return r.status == 200
	})
	again := b.async("78", "tools/call", `{"name":"t"}`)
	s.proceed <- struct{}{}
	(<-again).end()
}

// busy checks that r is the refusal of a limit, and gives its record.
func busy(t *testing.T, h *house, what string, r *reply, rule string) record {
	t.Helper()
	end := r.end()
	if r.status != 503 || r.header.Get("Retry-After") != "1" || code(end) != "1503" {
		t.Errorf("%s: %d %v %s", what, r.status, r.header, end)
	}
	ref := field(end, "error", "data", "ref")
	return h.recorded(what+" under "+ref, func(r record) bool {
		return fmt.Sprint(r.Seq) == ref && r.Kind == "decision" && r.Decision == "deny" && r.Rule == rule
	})
}

// A call that the server certainly did not run is sent once more; one that it
// may have run never is.
func TestRetries(t *testing.T) {
	t.Parallel()
	t.Run("a lost session is opened again once", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "legacy")
		s.serve = func(q *query) { q.result(`{"session":%q}`, q.session) }
		h := build(t, []Server{s.server()})
		c := h.legacy("/mcp/s", "uid:1000", `{}`)
		c.call("logging/setLevel", `{"level":"error"}`)
		c.call("resources/subscribe", `{"uri":"file:///a"}`)
		s.open()[1].close()
		equal(t, "call", text(c.tool("t", ""), "result", "session"), "session-2")
		for _, method := range []string{"logging/setLevel", "resources/subscribe"} {
			equal(t, method+" holds in the new session", s.last(method).session, "session-2")
		}
		if n := len(s.got("tools/call")); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
	t.Run("a server that forgets every session", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "legacy")
		h := build(t, []Server{s.server()})
		c := h.legacy("/mcp/s", "uid:1000", `{}`)
		s.onNotification = func(q *query) {
			if q.Method == "notifications/initialized" {
				go q.conn.close()
			}
		}
		s.open()[1].close()
		eventually(t, "the second session is refused too", func() bool { return code(c.tool("t", "")) == "1502" })
	})
	for kind, start := range transports {
		t.Run("a server that dies during the call, "+kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			ran := make(chan string, 10)
			s.serve = func(q *query) {
				ran <- q.name()
				if q.name() == "die" {
					if kind == "http" {
						panic(http.ErrAbortHandler)
					}
					q.conn.close()
					return
				}
				q.result(`{}`)
			}
			h := build(t, []Server{s.server()})
			c, other := h.legacy("/mcp/s", "uid:1000", `{}`), h.legacy("/mcp/s", "uid:1000", `{}`)
			r := c.begin("tools/call", `{"name":"die"}`)
			end := r.end()
			if r.status != http.StatusBadGateway || code(end) != "1502" {
				t.Errorf("%d %s", r.status, end)
			}
			equal(t, "the message is constant", text(end, "error", "message"), "Upstream failed")
			equal(t, "outcome", h.outcome(h.decided("tools/call", "s/die")), "failed")
			equal(t, "the next call", field(c.tool("next", ""), "result"), "{}")
			equal(t, "another session", field(other.tool("other", ""), "result"), "{}")
			got := <-ran + " " + <-ran + " " + <-ran
			equal(t, "what ran", got, "die next other")
		})
	}
	t.Run("a server that is not there", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "modern")
		h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.URL = "http://127.0.0.1:1/" })})
		r := h.modern("/mcp/s", "uid:1000").begin("tools/call", `{"name":"t"}`)
		end := r.end()
		if r.status != http.StatusBadGateway || strings.Contains(end, "127.0.0.1") {
			t.Errorf("%d %s", r.status, end)
		}
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "legacy")
	s.serve = func(q *query) { <-q.ctx.Done() }
	h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.Timeout = 2 * time.Second })})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	r := c.begin("tools/call", `{"name":"t"}`)
	end := r.end()
	if r.status != http.StatusGatewayTimeout || code(end) != "1504" {
		t.Errorf("%d %s", r.status, end)
	}
	s.last("notifications/cancelled")
	equal(t, "outcome", h.outcome(h.decided("tools/call", "s/t")), "timeout")
}

// A refusal tells its caller a constant text and the number of the record, and
// nothing else. A hidden server looks like an unknown one.
func TestRefusalsTellNothing(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "both")
	h := build(t, []Server{s.server(), {Name: "broken", Kind: "stdio", Refused: "no such file /secret/path"}},
		withRules("s", policy.List{Allow: []string{"*"}, Deny: []string{"secret*"}}, elicitation))
	c, m := h.legacy("/mcp/s", "uid:1000", `{}`), h.modern("/mcp/s", "uid:1000")
	for _, end := range []string{c.tool("secret_tool", ""), m.tool("secret_tool", "")} {
		if !strings.Contains(end, `"error":{"code":1403,"message":"Denied by policy","data":{"ref":`) || strings.Contains(end, "secret") {
			t.Errorf("denial: %s", end)
		}
		ref := field(end, "error", "data", "ref")
		h.recorded("the refusal", func(r record) bool {
			return fmt.Sprint(r.Seq) == ref && r.Decision == "deny" && r.Resource == "s/secret_tool"
		})
	}
	if n := len(s.got("tools/call")); n != 0 {
		t.Errorf("%d denied calls reached the server", n)
	}
	for _, method := range []string{"server/discover", "tools/list", "subscriptions/listen", "tools/call", "future/x"} {
		r := h.modern("/mcp/broken", "uid:1000").begin(method, `{"name":"x","notifications":{"toolsListChanged":true}}`)
		end := r.end()
		if r.status != http.StatusBadGateway || code(end) != "1502" || strings.Contains(end, "secret") {
			t.Errorf("%s: %d %s", method, r.status, end)
		}
	}
	if r := (&session{house: h, who: "uid:1000", path: "/mcp/broken", version: "2025-11-25"}).hello0(`{}`); r.status != http.StatusBadGateway {
		t.Errorf("initialize: %d", r.status)
	}
	unknown, hidden := h.modern("/mcp/ghost", "uid:1000").begin("tools/list", `{}`), h.modern("/mcp/s", "token:x server:other").begin("tools/list", `{}`)
	if a, b := unknown.end(), hidden.end(); a != b || unknown.status != 404 || hidden.status != 404 {
		t.Errorf("unknown %d %s, hidden %d %s", unknown.status, a, hidden.status, b)
	}
}

func TestRateLimitIsOfThePrincipal(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	h := build(t, []Server{s.server()}, func(h *house, _ *Options) { h.limits.CallsPerSecond = 1 })
	m := h.modern("/mcp/s", "uid:1000")
	began := time.Now()
	equal(t, "the first", code(m.tool("t", "")), "")
	r, admitted := secondCall(t, began, func() *reply { return m.begin("tools/call", `{"name":"t"}`) })
	end := r.end()
	if r.status != http.StatusTooManyRequests || code(end) != "1429" || r.header.Get("Retry-After") != "1" || field(end, "error", "data", "ref") == "" {
		t.Errorf("%d %v %s", r.status, r.header, end)
	}
	equal(t, "another caller", code(h.modern("/mcp/s", "token:bob").tool("t", "")), "")
	if n := len(s.got("tools/call")); n != admitted+2 {
		t.Errorf("%d calls reached the server, want %d", n, admitted+2)
	}
}

// The cause of a failure is told to callers of a development daemon only.
func TestDetailIsForDevelopment(t *testing.T) {
	t.Parallel()
	for _, dev := range []bool{false, true} {
		s := web(t, "s", "modern")
		h := build(t, []Server{s.server(func(_ *Server, d *upstream.Definition) { d.URL = "http://127.0.0.1:1/" })},
			func(_ *house, o *Options) { o.Dev = dev })
		end := h.modern("/mcp/s", "uid:1000").tool("t", "")
		if got := strings.Contains(field(end, "error", "data", "detail"), "connecting to server s"); got != dev {
			t.Errorf("dev %v: %s", dev, end)
		}
	}
}

// Acts that need a record are refused when the log cannot be written, and do
// not reach a server.
func TestNothingHappensWithoutARecord(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "both")
	h := build(t, []Server{s.server()})
	c, m := h.legacy("/mcp/s", "uid:1000", `{}`), h.modern("/mcp/s", "uid:1000")
	m.tool("t", "")
	before := len(s.got("tools/call"))
	if err := h.log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*reply{c.begin("tools/call", `{"name":"t"}`), m.begin("tools/call", `{"name":"t"}`), m.begin("subscriptions/listen", `{"notifications":{}}`)} {
		end := r.end()
		if r.status != 503 || code(end) != "1503" || r.header.Get("Retry-After") == "" {
			t.Errorf("%d %s", r.status, end)
		}
	}
	if len(s.got("tools/call")) != before || len(s.got("subscriptions/listen")) != 0 {
		t.Error("an act without a record reached the server")
	}
}
