package relay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/gate"
)

func limited(l gate.Limits) option { return func(h *house, _ *Options) { h.limits = l } }

// refusedBy checks that r is a refusal by a limit, and that the record of it
// stands under its number.
func refusedBy(t *testing.T, h *house, what string, r *reply, status int, rule string) record {
	t.Helper()
	end := r.end()
	if r.status != status || r.header.Get("Retry-After") != "1" {
		t.Errorf("%s: %d %v %s", what, r.status, r.header, end)
	}
	ref := field(end, "error", "data", "ref")
	return h.recorded(what+" under "+ref, func(r record) bool {
		return fmt.Sprint(r.Seq) == ref && r.Decision == "deny" && r.Rule == rule
	})
}

// secondCall makes calls until one is refused, which the second within a second is: a busy
// machine may take longer for each. before is the time before the first call. It returns the
// refusal and the number of further calls that were admitted.
func secondCall(t *testing.T, before time.Time, call func() *reply) (refused *reply, admitted int) {
	t.Helper()
	for ; admitted < 20; admitted++ {
		began := time.Now()
		r := call()
		if r.status != http.StatusOK {
			return r, admitted
		}
		r.end()
		if time.Since(before) < time.Second {
			t.Fatal("two calls within a second are admitted")
		}
		before = began
	}
	t.Fatal("no call is refused")
	return nil, admitted
}

// A list of all servers is one call, and a caller at its limit is told so,
// instead of being shown fewer of them.
func TestAMergedListIsOneCall(t *testing.T) {
	t.Parallel()
	var servers []Server
	for _, name := range []string{"a", "b", "c"} {
		s := web(t, name, "modern")
		s.setList("tools/list", `{"tools":[{"name":"t"}]}`)
		servers = append(servers, s.server())
	}
	h := build(t, servers, limited(gate.Limits{CallsPerSecond: 1, Calls: 1}))
	m := h.modern("/mcp", "uid:1000")
	list, began := func() *reply { return m.begin("tools/list", `{}`) }, time.Now()
	equal(t, "all", join(names(list().end(), "tools", "name")), "a__t b__t c__t")
	refused, _ := secondCall(t, began, list)
	refusedBy(t, h, "the second within a second", refused, http.StatusTooManyRequests, gate.RuleRate)
	equal(t, "another caller", join(names(h.modern("/mcp", "token:bob").call("tools/list", `{}`), "tools", "name")), "a__t b__t c__t")
}

// A caller with as many running calls as it may have is refused further ones,
// on one server and on all. Another caller is not.
func TestCallsOfOneCallerAtOnce(t *testing.T) {
	t.Parallel()
	s, other := web(t, "s", "modern"), web(t, "other", "modern")
	s.serve = func(q *query) { q.arrive(); q.result(`{}`) }
	h := build(t, []Server{s.server(), other.server()}, limited(gate.Limits{Calls: 1}))
	m := h.modern("/mcp/s", "uid:1000")
	done := make(chan string, 1)
	go func() { done <- h.modern("/mcp/s", "uid:1000").tool("t", "") }()
	eventually(t, "it runs", func() bool { return len(s.got("tools/call")) == 1 })
	r := refusedBy(t, h, "a second", m.begin("tools/call", `{"name":"second"}`), 503, gate.RuleCalls)
	equal(t, "of", r.Principal+" "+r.Resource, "uid:1000 s/second")
	refusedBy(t, h, "a list", h.modern("/mcp", "uid:1000").begin("tools/list", `{}`), 503, gate.RuleCalls)
	refusedBy(t, h, "in a session", (&session{house: h, who: "uid:1000", path: "/mcp/other", version: "2025-11-25"}).hello0(`{}`), 503, gate.RuleCalls)
	equal(t, "another caller", code(h.modern("/mcp/other", "token:bob").tool("t", "")), "")
	s.proceed <- struct{}{}
	<-done
	equal(t, "when it has ended", code(h.modern("/mcp/other", "uid:1000").tool("t", "")), "")
}

// Listens are counted apart from calls. A listen on the aggregate counts once.
func TestListensOfOneCallerAtOnce(t *testing.T) {
	t.Parallel()
	h := build(t, []Server{web(t, "a", "modern").server(), web(t, "b", "modern").server()}, limited(gate.Limits{Calls: 1, Streams: 2}))
	all, one := h.modern("/mcp", "uid:1000"), h.modern("/mcp/a", "uid:1000")
	const want = `{"toolsListChanged":true}`
	first, _ := all.subscribe(want)
	one.subscribe(want)
	for _, m := range []*modern{all, one} {
		refusedBy(t, h, "a third on "+m.path, m.begin("subscriptions/listen", `{"notifications":`+want+`}`), 503, gate.RuleStreams)
	}
	equal(t, "a call", code(one.tool("t", "")), "")
	h.modern("/mcp", "token:bob").subscribe(want)
	first.stop()
	eventually(t, "there is room again", func() bool {
		r := all.begin("subscriptions/listen", `{"notifications":`+want+`}`)
		defer r.stop()
		return r.status == 200
	})
}

// The questions of a server count towards its own rate, not towards that of its
// caller.
func TestQuestionsCostTheirCallerNothing(t *testing.T) {
	t.Parallel()
	s := web(t, "quiz", "legacy")
	s.serve = func(q *query) {
		if q.Method != "tools/call" {
			q.result(`{}`)
			return
		}
		var answers []string
		for range 20 {
			answers = append(answers, field(q.ask("elicitation/create", `{"message":"m"}`), "result", "action"))
		}
		q.result(`{"answers":[%s]}`, strings.Join(answers, ","))
	}
	h := build(t, []Server{s.server()}, limited(gate.Limits{CallsPerSecond: 3}))
	c := h.legacy("/mcp/quiz", "uid:1000", elicits)
	r := c.begin("tools/call", `{"name":"t"}`)
	end := ""
	for end == "" {
		if m := r.next(); field(m, "method") != "" {
			c.answer(m, `{"action":"accept"}`)
		} else {
			end = m
		}
	}
	answers := field(end, "result", "answers")
	if !strings.HasPrefix(answers, `["accept","accept","accept",`) || !strings.Contains(answers, "decline") {
		t.Errorf("answers %s", answers)
	}
	h.recorded("a question too many", func(r record) bool { return r.Action == "elicitation/create" && r.Rule == gate.RuleRate })
	equal(t, "the caller", code(c.call("prompts/list", `{}`)), "")
}
