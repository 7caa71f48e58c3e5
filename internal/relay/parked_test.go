package relay

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

// asker is a legacy server whose objects ask: each name is a word, a number of
// questions at once, and a number of rounds.
func asker(t *testing.T, start func(*testing.T, string, string) *script) *script {
	s := start(t, "quiz", "legacy")
	s.serve = func(q *query) {
		word, atOnce, rounds := "", 0, 0
		fmt.Sscanf(strings.ReplaceAll(q.name()+text(string(q.Params), "uri"), ":", " "), "%s %d %d", &word, &atOnce, &rounds)
		var all []string
		for round := range rounds {
			answers := make([]string, atOnce)
			var wg sync.WaitGroup
			for i := range atOnce {
				wg.Go(func() {
					answers[i] = q.ask(policy.AskElicitation, fmt.Sprintf(`{"message":"%s %d.%d","elicitationId":"e","x":1.0}`, word, round, i))
				})
			}
			wg.Wait()
			q.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, orNull(rawjson.GetPath(q.Params, "_meta", "progressToken")), round))
			for _, a := range answers {
				all = append(all, field(a, "result", "content", "n"))
			}
		}
		q.result(`{"said":"%s: %s"}`, word, strings.Join(all, " "))
	}
	return s
}

// object names an object of quiz as a request does.
func object(method, path, name string) string {
	if method == "resources/read" {
		if path == "/mcp" {
			name = "doorward://quiz/" + name
		}
		return `"uri":"` + name + `"`
	}
	if path == "/mcp" {
		name = "quiz__" + name
	}
	return `"name":"` + name + `"`
}

// responses answers every question of a result with numbers from n on.
func responses(result string, n int) string {
	var edits []rawjson.Edit
	for key := range rawjson.Members(rawjson.GetPath([]byte(result), "result", wire.InputRequests)) {
		edits = append(edits, rawjson.Edit{Key: key, Value: fmt.Appendf(nil, `{"action":"accept","content":{"n":%d}}`, n)})
		n++
	}
	return string(rawjson.Set([]byte(`{}`), edits...))
}

// back is a request that comes back with the answers to the questions of a result.
func back(params, result, responses string) string {
	return `{` + params + `,"requestState":` + field(result, "result", "requestState") + `,"inputResponses":` + responses + `}`
}

// answered is a call whose questions were all answered.
type answered struct {
	rounds []string // the results that asked; questions asked at once may come in several on a busy machine
	before []string // the notifications
	last   string   // the params that brought the end
	end    string
}

// answer calls and answers every question, with the numbers from n on.
func answer(m *modern, method, params string, n int) (a answered) {
	a.last = `{` + params + `}`
	for {
		r := m.begin(method, a.last)
		a.end = r.end()
		a.before = append(a.before, r.before...)
		if text(a.end, "result", "resultType") != "input_required" {
			return a
		}
		a.rounds = append(a.rounds, a.end)
		given := responses(a.end, n)
		for range rawjson.Members([]byte(given)) {
			n++
		}
		a.last = back(params, a.end, given)
	}
}

// A modern client gets the questions of a legacy server as input_required, in as many
// rounds and with as many questions at once as the server asks, and the same call of
// the server goes on.
func TestLegacyServerAsksAModernClient(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
			for _, path := range []string{"/mcp/quiz", "/mcp"} {
				t.Run(kind+" "+method+" "+path, func(t *testing.T) {
					t.Parallel()
					s := asker(t, start)
					h := build(t, []Server{s.server()})
					m := h.modern(path, "uid:1000")
					m.caps = elicits
					m.meta = []rawjson.Edit{{Key: "progressToken", Value: []byte(`"p"`)}}
					params := object(method, path, "a:3:2")
					q := answer(m, method, params, 1)
					contains(t, "questions", join(q.rounds), `"[quiz] a 0.0","x":1.0}`, `"[quiz] a 0.1"`, `"[quiz] a 0.2"`, `"[quiz] a 1.0"`, `"[quiz] a 1.1"`, `"[quiz] a 1.2"`)
					if strings.Contains(join(q.rounds), "elicitationId") {
						t.Errorf("an id that the era does not have: %s", q.rounds)
					}
					if strings.Contains(q.rounds[0], "a 1.") {
						t.Errorf("a question before those that came before it were answered: %s", q.rounds[0])
					}
					said := text(q.end, "result", "said")
					for n := 1; n <= 6; n++ {
						contains(t, "the server heard", said, fmt.Sprint(n))
					}
					equal(t, "kind of result", text(q.end, "result", "resultType"), "complete")
					contains(t, "progress", join(q.before), `"progressToken":"p","progress":1`)
					if n := len(s.got(method)); n != 1 {
						t.Errorf("the server was called %d times", n)
					}
					equal(t, "again", text(m.call(method, q.last), "result", "said"), said)
					equal(t, "recorded", h.outcome(h.decided(policy.AskElicitation, "quiz")), "ok")
					equal(t, "questions on record", fmt.Sprint(h.count(policy.AskElicitation, "quiz")), "6")
				})
			}
		}
	}
}

// Questions that were not answered are asked again; answers to none are ignored.
func TestPartOfTheAnswers(t *testing.T) {
	t.Parallel()
	s := asker(t, stdio)
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = elicits
	params := object("tools/call", "", "a:2:1")
	first := m.call("tools/call", `{`+params+`}`)
	both := func() bool {
		requests := rawjson.GetPath([]byte(first), "result", wire.InputRequests)
		return rawjson.Get(requests, "quiz-1") != nil && rawjson.Get(requests, "quiz-2") != nil
	}
	for text(first, "result", "resultType") == "input_required" && !both() { // the other one is not decided yet
		first = m.call("tools/call", back(params, first, `{}`))
	}
	one := `{"quiz-1":{"action":"accept","content":{"n":1}},"quiz-77":{"action":"accept","content":{"n":77}}}`
	rest := m.call("tools/call", back(params, first, one))
	contains(t, "the rest", rest, `"quiz-2"`)
	if strings.Contains(rest, `"quiz-1"`) {
		t.Errorf("asked again: %s", rest)
	}
	none := m.call("tools/call", `{`+params+`,"requestState":`+field(rest, "result", "requestState")+`}`)
	equal(t, "no answer", field(none, "result", "inputRequests"), field(rest, "result", "inputRequests"))
	equal(t, "no object", code(m.call("tools/call", back(params, rest, `{"quiz-2":"yes"}`))), "-32602")
	contains(t, "end", text(m.call("tools/call", back(params, rest, `{"quiz-2":{"action":"accept","content":{"n":2}}}`)), "result", "said"), "1", "2")
}

// A parked call is bound to its principal, server, method, name and arguments. Another
// request for it is refused and does not reach the server.
func TestParkedCallIsBound(t *testing.T) {
	t.Parallel()
	s, other := asker(t, stdio), web(t, "other", "legacy")
	h := build(t, []Server{s.server(), other.server()})
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = elicits
	first := m.call("tools/call", `{"name":"a:1:1","arguments":{"v":1}}`)
	answers := responses(first, 1)
	state := field(first, "result", "requestState")
	try := func(c *modern, method, params string) string {
		c.caps = elicits
		return code(c.call(method, `{`+params+`,"requestState":`+state+`,"inputResponses":`+answers+`}`))
	}
	before := len(s.got("tools/call"))
	bob, side := h.modern("/mcp/quiz", "token:bob"), h.modern("/mcp/other", "uid:1000")
	for what, got := range map[string]string{
		"other principal": try(bob, "tools/call", `"name":"a:1:1","arguments":{"v":1}`),
		"other server":    try(side, "tools/call", `"name":"a:1:1","arguments":{"v":1}`),
		"other tool":      try(m, "tools/call", `"name":"b:1:1","arguments":{"v":1}`),
		"other arguments": try(m, "tools/call", `"name":"a:1:1","arguments":{"v":2}`),
		"no arguments":    try(m, "tools/call", `"name":"a:1:1"`),
		"other method":    try(m, "prompts/get", `"name":"a:1:1","arguments":{"v":1}`),
	} {
		equal(t, what, got, "-32602")
	}
	if n := len(s.got("tools/call")) + len(s.got("prompts/get")) + len(other.got("tools/call")); n != before {
		t.Errorf("%d requests reached a server", n-before)
	}
	state = strings.Replace(state, "dw1.", "dw1.A", 1)
	equal(t, "tampered", try(m, "tools/call", `"name":"a:1:1","arguments":{"v":1}`), "-32602")
	state = field(first, "result", "requestState")
	another := h.modern("/mcp/quiz", "uid:1000")
	equal(t, "another process of the principal", try(another, "tools/call", `"name":"a:1:1","arguments":{"v":1}`), "")
}

// A client that leaves before it is asked ends the call. One that leaves with the
// questions does not, until they expire.
func TestClientLeavesAParkedCall(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := asker(t, start)
			ask := s.serve
			s.serve = func(q *query) {
				if q.name() == "slow" {
					q.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":1}`, rawjson.GetPath(q.Params, "_meta", "progressToken")))
					<-q.ctx.Done()
					return
				}
				ask(q)
			}
			h := build(t, []Server{s.server()})
			m := h.modern("/mcp/quiz", "uid:1000")
			m.caps = elicits
			r := m.begin("tools/call", `{"name":"slow","_meta":{"progressToken":1}}`)
			r.next()
			r.stop()
			<-s.last("tools/call").ctx.Done()
			first := m.call("tools/call", `{"name":"a:1:1"}`)
			parked := h.parked("quiz")
			if len(parked) != 1 {
				t.Fatalf("%d parked calls", len(parked))
			}
			parked[0].expire()
			<-parked[0].ctx.Done()
			equal(t, "question", h.outcome(h.decided(policy.AskElicitation, "quiz")), "unanswered")
			equal(t, "too late", code(m.call("tools/call", back(`"name":"a:1:1"`, first, responses(first, 1)))), "-32602")
			eventually(t, "nothing is left", func() bool { return len(h.parked("quiz")) == 0 && h.calls("quiz") == 0 })
		})
	}
}

// A parked call that expires ends at its server too: the question is cancelled, and then the
// call if the server goes on.
func TestAnExpiredCallEndsAtItsServer(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := asker(t, start)
			told := make(chan string, 1)
			s.serve = func(q *query) {
				id, answer := q.question()
				q.emit(rawjson.AppendRequest(nil, wire.ID(id), policy.AskElicitation, []byte(`{"message":"?"}`)))
				told <- q.wait(answer)
				<-q.ctx.Done()
				close(told)
			}
			h := build(t, []Server{s.server()})
			h.relay.calls.parkFor = 100 * time.Millisecond
			m := h.modern("/mcp/quiz", "uid:1000")
			m.caps = elicits
			equal(t, "parked", text(m.call("tools/call", `{"name":"stubborn"}`), "result", "resultType"), "input_required")
			for _, want := range []string{`"cancel"`, ""} {
				select {
				case answer := <-told:
					equal(t, "what the server is told", field(answer, "result", "action"), want)
				case <-time.After(30 * time.Second):
					t.Fatal("the server is not told")
				}
			}
		})
	}
}

// parked are the parked calls of a server.
func (h *house) parked(server string) []*parked {
	k := &h.relay.table.Load().byName[server].parking
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*parked(nil), k.calls...)
}

// calls are the calls on the pooled connections of a server.
func (h *house) calls(server string) (n int) {
	b := h.relay.table.Load().byName[server]
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.pool {
		n += int(l.calls.Load())
	}
	return n
}

// A question on a pipe, which does not name its call, goes to the only call that can have
// asked it. If several can, it goes to none, and from then on each of these has a connection
// of its own while it asks.
func TestQuestionsOfParallelCallsOnAPipe(t *testing.T) {
	t.Parallel()
	s := asker(t, stdio)
	ask := s.serve
	var twins atomic.Int32
	var asked sync.WaitGroup
	asked.Add(2)
	s.serve = func(q *query) {
		if q.name() != "twin:1:1" || twins.Add(1) > 2 {
			ask(q)
			return
		}
		q.arrive()
		answer := q.ask(policy.AskElicitation, `{"message":"twin 0.0"}`)
		asked.Done()
		asked.Wait()
		q.result(`{"said":"twin: %s"}`, field(answer, "result", "content", "n"))
	}
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = elicits
	first := m.call("tools/call", `{"name":"a:1:1"}`)
	contains(t, "a call beside a parked one", m.call("tools/call", `{"name":"b:0:0"}`), `"said":"b: "`)
	second := m.call("tools/call", `{"name":"b:1:1"}`)
	contains(t, "a question beside a parked one", second, `"[quiz] b 0.0"`)
	contains(t, "its answer", m.call("tools/call", back(`"name":"b:1:1"`, second, responses(second, 2))), `"said":"b: 2"`)
	contains(t, "the other's", m.call("tools/call", back(`"name":"a:1:1"`, first, responses(first, 1))), `"said":"a: 1"`)

	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			c := h.modern("/mcp/quiz", "uid:1000")
			c.caps = elicits
			contains(t, "a twin", c.call("tools/call", fmt.Sprintf(`{"name":"twin:1:1","arguments":{"n":%d}}`, i)), `"said":"twin: "`)
		})
	}
	eventually(t, "both arrive", func() bool { return len(s.got("tools/call")) == 5 })
	close(s.proceed)
	wg.Wait()
	for i := range 4 {
		wg.Go(func() {
			c := h.modern("/mcp/quiz", "uid:1000")
			c.caps = elicits
			params := fmt.Sprintf(`"name":"twin:1:1","arguments":{"m":%d}`, i)
			asked := c.call("tools/call", `{`+params+`}`)
			contains(t, "a question of its own", asked, `"[quiz] twin 0.0"`)
			contains(t, "its own answer", c.call("tools/call", back(params, asked, responses(asked, 100+i))), fmt.Sprintf(`"said":"twin: %d"`, 100+i))
		})
	}
	wg.Wait()
}

// Each of many clients over HTTP gets the questions of its own call.
func TestParallelQuestionsOverHTTP(t *testing.T) {
	t.Parallel()
	s := asker(t, web)
	h := build(t, []Server{s.server()})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c := h.modern("/mcp/quiz", "uid:1000")
			c.caps = elicits
			params := fmt.Sprintf(`"name":"w%d:2:1"`, i)
			q := answer(c, "tools/call", params, 10*i)
			contains(t, "questions", join(q.rounds), fmt.Sprintf(`"[quiz] w%d 0.0"`, i), fmt.Sprintf(`"[quiz] w%d 0.1"`, i))
			contains(t, "result", q.end, fmt.Sprintf(`"said":"w%d: `, i))
		})
	}
	wg.Wait()
}

// A server that ends, or takes its question back, leaves no client waiting.
func TestServerLeavesAParkedCall(t *testing.T) {
	t.Parallel()
	s := asker(t, stdio)
	ask := s.serve
	s.serve = func(q *query) {
		if q.name() != "regrets" {
			ask(q)
			return
		}
		id, answer := q.question()
		q.emit(rawjson.AppendRequest(nil, wire.ID(id), policy.AskElicitation, []byte(`{"message":"never mind"}`)))
		q.arrive()
		q.notify("notifications/cancelled", `{"requestId":`+id+`}`)
		select {
		case a := <-answer:
			q.result(`{"said":%q}`, a)
		case <-time.After(100 * time.Millisecond):
			q.result(`{"said":"nothing"}`)
		}
	}
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = elicits
	asked := m.call("tools/call", `{"name":"regrets"}`)
	close(s.proceed)
	equal(t, "recorded", h.outcome(h.decided(policy.AskElicitation, "quiz")), "cancelled")
	contains(t, "a question that was withdrawn", m.call("tools/call", back(`"name":"regrets"`, asked, `{}`)), `"said":"nothing"`)
	asked = m.call("tools/call", `{"name":"a:1:1"}`)
	for _, c := range s.open() {
		c.close()
	}
	equal(t, "a server that ended", code(m.call("tools/call", back(`"name":"a:1:1"`, asked, responses(asked, 1)))), "1502")
}

// A principal has a bounded number of parked calls; the oldest expires.
func TestParkedCallsAreBounded(t *testing.T) {
	t.Parallel()
	s := asker(t, web)
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = elicits
	bob := h.modern("/mcp/quiz", "token:bob")
	bob.caps = elicits
	his := bob.call("tools/call", `{"name":"a:1:1"}`)
	asked := make([]string, maxParked+5)
	for i := range asked {
		asked[i] = m.call("tools/call", fmt.Sprintf(`{"name":"a:1:1","arguments":{"n":%d}}`, i))
	}
	eventually(t, "the oldest expire", func() bool { return len(h.parked("quiz")) == maxParked+1 })
	end := func(i int) string {
		return m.call("tools/call", back(fmt.Sprintf(`"name":"a:1:1","arguments":{"n":%d}`, i), asked[i], responses(asked[i], 1)))
	}
	equal(t, "the oldest", code(end(0)), "-32602")
	contains(t, "the newest", end(len(asked)-1), `"said":"a: 1"`)
	contains(t, "another principal's", bob.call("tools/call", back(`"name":"a:1:1"`, his, responses(his, 7))), `"said":"a: 7"`)
}

// The oldest calls do not expire while a request of their client waits for their result; the
// oldest of the others do in their place.
func TestParkedCallsAreBoundedBesideThoseAtWork(t *testing.T) {
	t.Parallel()
	const atWork = 3
	s := web(t, "quiz", "legacy")
	s.serve = func(q *query) {
		q.ask(policy.AskElicitation, `{"message":"?"}`)
		q.arrive()
		q.result(`{"said":"done"}`)
	}
	h := build(t, []Server{s.server()})
	asked := make([]string, atWork+maxParked+2)
	client := func() *modern {
		m := h.modern("/mcp/quiz", "uid:1000")
		m.caps = elicits
		return m
	}
	park := func(i int) {
		asked[i] = client().call("tools/call", fmt.Sprintf(`{"name":"a","arguments":{"n":%d}}`, i))
	}
	end := func(i int) string {
		return client().call("tools/call", back(fmt.Sprintf(`"name":"a","arguments":{"n":%d}`, i), asked[i], responses(asked[i], 1)))
	}
	ends := make(chan string, atWork)
	for i := range atWork {
		park(i)
		go func() { ends <- end(i) }()
	}
	eventually(t, "they are at work", func() bool {
		n := 0
		for _, p := range h.parked("quiz") {
			if !p.waits() {
				n++
			}
		}
		return n == atWork
	})
	park(atWork)
	var wg sync.WaitGroup
	for first := range 16 {
		wg.Go(func() {
			for i := atWork + 1 + first; i < len(asked); i += 16 {
				park(i)
			}
		})
	}
	wg.Wait()
	eventually(t, "the oldest others expire", func() bool { return len(h.parked("quiz")) == maxParked })
	close(s.proceed)
	for range atWork {
		contains(t, "one at work", <-ends, `"said":"done"`)
	}
	equal(t, "the oldest other", code(end(atWork)), "-32602")
	contains(t, "one of the newest", end(len(asked)-1), `"said":"done"`)
}

// A modern client is not asked what it did not declare, or policy denies.
func TestLegacyServerMayNotAskAModernClient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, caps, method string
		ask                policy.List
	}{
		{"not declared", `{"sampling":{}}`, policy.AskElicitation, askAll},
		{"denied", everyQuestion, policy.AskElicitation, policy.List{}},
		{"sampling by default", everyQuestion, policy.AskSampling, elicitation},
		{"roots by default", everyQuestion, policy.AskRoots, elicitation},
		{"an unknown question", everyQuestion, "future/ask", askAll},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			s := asking(t, stdio)
			h := build(t, []Server{s.server()}, withRules("quiz", everyTool, c.ask))
			m := h.modern("/mcp/quiz", "uid:1000")
			m.caps = c.caps
			end := m.tool("t", fmt.Sprintf(`"method":%q`, c.method))
			if refused := field(end, "result", "answer"); !strings.Contains(refused, "decline") && !strings.Contains(refused, "-32601") {
				t.Errorf("the server was answered %s", end)
			}
		})
	}
}

// A thousand parked calls whose clients are gone leave nothing: their questions are
// cancelled, the calls end, and the record says that they were not answered.
func TestAbandonedParkedCalls(t *testing.T) {
	t.Parallel()
	const principals, each = 20, 50
	s := asker(t, web)
	h := build(t, []Server{s.server()})
	h.relay.calls.parkFor = 2 * time.Second
	var all sync.WaitGroup
	for n := range principals {
		all.Go(func() {
			for i := range each {
				m := h.modern("/mcp/quiz", fmt.Sprintf("token:p%d", n))
				m.caps = elicits
				if first := m.call("tools/call", fmt.Sprintf(`{"name":"a:1:1","arguments":{"i":%d}}`, i)); text(first, "result", "resultType") != "input_required" {
					t.Errorf("not parked: %s", first)
				}
			}
		})
	}
	all.Wait()
	b := h.relay.table.Load().byName["quiz"]
	eventually(t, "all calls are over", func() bool {
		b.parking.mu.Lock()
		defer b.parking.mu.Unlock()
		return len(b.parking.calls) == 0 && b.traffic.active.Load() == 0
	})
	for _, l := range b.pool {
		c := l.live.Load()
		eventually(t, "nothing of them is left on the connection", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.running)+len(c.asks)+int(l.calls.Load()) == 0
		})
	}
	eventually(t, "each question is on record as unanswered", func() bool {
		n := 0
		for _, r := range h.records() {
			if r.Kind == audit.Outcome && r.Action == policy.AskElicitation && r.Result == "unanswered" {
				n++
			}
		}
		return n == principals*each
	})
}
