package relay

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/upstream"
)

// Ten sessions of twenty-two stdio servers each get every tool, with about one
// process for each server: at most 25.
func TestSessionsShareTheProcessesOfTheirServers(t *testing.T) {
	t.Parallel()
	var scripts []*script
	var servers []Server
	for i := range 22 {
		s := stdio(t, fmt.Sprintf("s%02d", i), "legacy")
		scripts = append(scripts, s)
		servers = append(servers, s.server(func(r *Server, _ *upstream.Definition) { r.MaxInstances = 16 }))
	}
	h := build(t, servers)
	var wg sync.WaitGroup
	for range 10 {
		c := h.legacy("/mcp", "uid:1000", `{"elicitation":{},"sampling":{},"roots":{}}`)
		wg.Go(func() {
			stream := c.listen()
			for got := 0; got < 22; {
				if got = len(names(c.call("tools/list", `{}`), "tools", "name")); got < 22 {
					stream.nextOf(protocol.ToolsChanged)
				}
			}
		})
	}
	wg.Wait()
	children := 0
	for _, s := range scripts {
		children += s.connected()
	}
	if children > 25 {
		t.Errorf("%d processes", children)
	}
}

// Sessions that a server can tell apart have processes of their own: those of
// another principal or with other capabilities, a session that offers roots, and
// each session where the program keeps state for it.
func TestSessionsThatAServerCanTellApartShareNoProcess(t *testing.T) {
	t.Parallel()
	s, browser, rooted := stdio(t, "s", "legacy"), stdio(t, "browser", "legacy"), stdio(t, "rooted", "legacy")
	for _, s := range []*script{s, browser, rooted} {
		s.serve = func(q *query) { q.result(`{"n":%d}`, q.n) }
	}
	h := build(t, []Server{s.server(), browser.server(func(r *Server, _ *upstream.Definition) { r.PerSession = true }), rooted.server()},
		withRules("rooted", everyTool, policy.List{Allow: []string{"*"}}))
	for i, c := range []struct {
		who, caps string
		want      [3]string // connection to s, browser, rooted
	}{
		{"uid:1000", `{}`, [3]string{"1", "1", "1"}},
		{"uid:1000", ``, [3]string{"1", "2", "1"}},
		{"uid:1000", elicits, [3]string{"2", "3", "2"}},
		{"uid:1000", `{ "elicitation" : {} }`, [3]string{"2", "4", "2"}},
		{"uid:1000", `{"roots":{},"elicitation":{}}`, [3]string{"2", "5", "3"}}, // policy lets one server alone ask for roots
		{"uid:1000", `{"roots":{},"elicitation":{}}`, [3]string{"2", "6", "4"}},
		{"token:bob", `{}`, [3]string{"3", "7", "5"}},
	} {
		if c.caps == "" {
			c.caps = `{}`
		}
		session := h.legacy("/mcp", c.who, c.caps)
		for j, server := range []string{"s", "browser", "rooted"} {
			equal(t, fmt.Sprintf("session %d on %s", i, server), field(session.tool(server+"__t", ""), "result", "n"), c.want[j])
		}
	}
}

// A question that comes while the call of one session runs goes to that session.
// From then on such calls run on separate processes, so that two sessions can be
// asked at once.
func TestQuestionsOfASharedProcess(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		switch q.name() {
		case "":
			q.result(`{}`)
		case "plain":
			q.arrive()
			q.result(`{"n":%d}`, q.n)
		default:
			q.result(`{"n":%d,"answer":%s}`, q.n, q.ask(policy.AskElicitation, `{"message":"`+q.arg("for")+`?","requestedSchema":{"type":"object","properties":{}}}`))
		}
	}
	h := build(t, []Server{s.server()})
	a, b := h.legacy("/mcp/s", "uid:1000", elicits), h.legacy("/mcp/s", "uid:1000", elicits)
	ask := func(c *session, name string) *reply {
		return c.begin("tools/call", `{"name":"asks","arguments":{"for":"`+name+`"}}`)
	}
	settle := func(c *session, r *reply, name string) string {
		t.Helper()
		q := r.nextOf(policy.AskElicitation)
		equal(t, "the question of "+name, text(q, "params", "message"), "[s] "+name+"?")
		c.answer(q, `{"action":"accept","content":{"who":"`+name+`"}}`)
		end := r.end()
		contains(t, "the answer of "+name, end, `"who":"`+name+`"`)
		return field(end, "result", "n")
	}
	one := settle(a, ask(a, "ann"), "ann")
	equal(t, "the shared process", one, "1")

	first, second := ask(a, "ann"), ask(b, "ben")
	from := settle(b, second, "ben") + settle(a, first, "ann")
	if s.connected() < 2 || from == "11" {
		t.Errorf("two calls that ask ran on one process: %s", from)
	}
	equal(t, "no other session was asked", join(append(first.before, second.before...)), "")
}

// A question outside a call reaches no session while calls of two sessions run,
// because it could be for either. If there is one session it reaches that one.
func TestAnAmbiguousQuestionReachesNoSession(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) { q.arrive(); q.result(`{}`) }
	h := build(t, []Server{s.server()})
	a := h.legacy("/mcp/s", "uid:1000", elicits)
	alone := a.listen()
	answer := make(chan string, 1)
	go func() { answer <- s.open()[0].put(policy.AskElicitation, form) }()
	a.answer(alone.nextOf(policy.AskElicitation), `{"action":"accept"}`)
	contains(t, "the only session", <-answer, `"action":"accept"`)

	b := h.legacy("/mcp/s", "uid:1000", elicits)
	calls := []*reply{}
	done := make(chan *reply, 2)
	for _, c := range []*session{a, b} {
		go func() { done <- c.begin("tools/call", `{"name":"t"}`) }()
	}
	eventually(t, "both run", func() bool { return len(s.got("tools/call")) == 2 })
	contains(t, "refused", s.open()[0].put(policy.AskElicitation, form), `"action":"decline"`)
	h.recorded("the refusal", func(r record) bool {
		return r.Action == policy.AskElicitation && r.Principal == "uid:1000" && r.Kind == "outcome" && r.Result == "unsupported"
	})
	for range 2 {
		s.proceed <- struct{}{}
	}
	for range 2 {
		r := <-done
		r.end()
		calls = append(calls, r)
	}
	for _, r := range calls {
		if strings.Contains(join(r.before), "elicitation") {
			t.Errorf("a session was asked: %s", r.before)
		}
	}
}

// Each session gets the log messages of its own calls from its own level on. The
// shared process gets the most verbose of the levels.
func TestLogLevelsOfSessionsThatShare(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.Method == "tools/call" {
			q.notify("notifications/message", `{"level":"debug","data":1}`)
			q.notify("notifications/message", `{"level":"error","data":2}`)
		}
		q.result(`{}`)
	}
	h := build(t, []Server{s.server()})
	a, b := h.legacy("/mcp/s", "uid:1000", elicits), h.legacy("/mcp/s", "uid:1000", elicits)
	for c, level := range map[*session]string{a: "debug", b: "error"} {
		equal(t, level, field(c.call("logging/setLevel", `{"level":"`+level+`"}`), "error"), "")
	}
	levels := s.got("logging/setLevel")
	equal(t, "the level of the process", text(levels[len(levels)-1].raw, "params", "level"), "debug")
	for c, want := range map[*session]int{a: 2, b: 1} {
		r := c.begin("tools/call", `{"name":"t"}`)
		r.end()
		if len(r.before) != want {
			t.Errorf("heard %s, want %d messages", r.before, want)
		}
	}
}
