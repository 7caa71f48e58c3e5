package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
)

const form = `{"message":"who are you?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer","default":9007199254740993}}},"x":1.0}`

// asking is a legacy server whose tool asks the client a question and returns
// the answer. The method and the params come from the arguments of the tool.
func asking(t *testing.T, start func(*testing.T, string, string) *script) *script {
	s := start(t, "quiz", "legacy")
	s.serve = func(q *query) {
		if q.Method != "tools/call" {
			q.result(`{}`)
			return
		}
		params := form
		if p := field(string(q.Params), "arguments", "params"); p != "" {
			params = p
		}
		q.result(`{"content":[],"answer":%s}`, q.ask(q.arg("method"), params))
	}
	return s
}

func TestQuestionIsRelayedLabelledAndAnsweredOnce(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := build(t, []Server{asking(t, start).server()})
			c := h.legacy("/mcp/quiz", "uid:1000", elicits)
			r := c.begin("tools/call", `{"name":"t","arguments":{"method":"elicitation/create"}}`)
			q := r.next()
			equal(t, "question", q, strings.Replace(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":`+form+`}`, "who are you?", "[quiz] who are you?", 1))
			stranger := h.legacy("/mcp/quiz", "token:bob", elicits)
			stranger.answer(q, `{"action":"accept","content":{"stolen":true}}`)
			other := h.legacy("/mcp/quiz", "uid:1000", elicits)
			other.answer(q, `{"action":"accept","content":{"mixed":true}}`)
			c.answer(q, `{"action":"accept","content":{"n":1.0,"z":null}}`)
			c.answer(q, `{"action":"accept","content":{"second":true}}`)
			equal(t, "answer", field(r.end(), "result", "answer"), `{"jsonrpc":"2.0","id":"ask-1","result":{"action":"accept","content":{"n":1.0,"z":null}}}`)
			d := h.decided(policy.AskElicitation, "quiz")
			equal(t, "recorded", d.Decision+" "+h.outcome(d), "allow ok")
		})
	}
}

func TestQuestionsThatMayNotBeAsked(t *testing.T) {
	t.Parallel()
	const decline = `{"action":"decline"}`
	const url = `{"mode":"url","message":"go","elicitationId":"e","url":`
	for _, c := range []struct {
		name, caps, method, params string
		ask                        policy.List
		answer, decision           string
	}{
		{"sampling is denied by default", `{"sampling":{}}`, policy.AskSampling, `{}`, elicitation, "-32601", "deny"},
		{"roots are denied by default", `{"roots":{}}`, policy.AskRoots, `{}`, elicitation, "-32601", "deny"},
		{"elicitation denied by the operator", elicits, policy.AskElicitation, `{"message":"m"}`, policy.List{}, decline, "deny"},
		{"elicitation that the client did not declare", `{}`, policy.AskElicitation, `{"message":"m"}`, askAll, decline, "allow"},
		{"sampling that the client did not declare", `{}`, policy.AskSampling, `{}`, askAll, "-32601", "allow"},
		{"a URL for a client of forms", elicits, policy.AskElicitation, url + `"https://x.example/"}`, askAll, decline, "allow"},
		{"a form for a client of URLs", `{"elicitation":{"url":{}}}`, policy.AskElicitation, `{"message":"m"}`, askAll, decline, "allow"},
		{"a URL in the clear", `{"elicitation":{"url":{}}}`, policy.AskElicitation, url + `"http://x.example/"}`, askAll, decline, "allow"},
		{"a URL that runs a program", `{"elicitation":{"url":{}}}`, policy.AskElicitation, url + `"file:///bin/sh"}`, askAll, decline, "allow"},
		{"a URL with a password", `{"elicitation":{"url":{}}}`, policy.AskElicitation, url + `"https://bank.example@evil.example/"}`, askAll, decline, "allow"},
		{"a mode in another case", everyCapability, policy.AskElicitation, `{"mode":"Url","message":"m","url":"http://x.example/"}`, askAll, decline, "allow"},
		{"a mode that is no text", everyCapability, policy.AskElicitation, `{"mode":["url"],"message":"m","url":"http://x.example/"}`, askAll, decline, "allow"},
		{"a method in another case", everyCapability, "Sampling/CreateMessage", `{}`, askAll, "-32601", "allow"},
		{"no URL", `{"elicitation":{"url":{}}}`, policy.AskElicitation, `{"mode":"url","message":"m"}`, askAll, decline, "allow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := build(t, []Server{asking(t, web).server()}, withRules("quiz", everyTool, c.ask))
			s := h.legacy("/mcp/quiz", "uid:1000", c.caps)
			r := s.begin("tools/call", fmt.Sprintf(`{"name":"t","arguments":{"method":%q,"params":%s}}`, c.method, c.params))
			end := r.end()
			contains(t, "answer", field(end, "result", "answer"), c.answer)
			if len(r.before) != 0 {
				t.Errorf("the client was asked: %s", r.before)
			}
			action, resource := c.method, "quiz"
			if question.CapabilityOf(action) == "" {
				action, resource = question.Other, "quiz/"+c.method
			}
			d := h.decided(action, resource)
			equal(t, "decision", d.Decision, c.decision)
			if c.decision == audit.Allow {
				equal(t, "outcome", h.outcome(d), "unsupported")
			}
		})
	}
}

// A question that policy allows and the client declares arrives byte for byte,
// except that the message of an elicitation gets the server's label.
func TestQuestionsThatMayBeAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, caps, method, params, want string }{
		{"sampling", `{"sampling":{}}`, policy.AskSampling, `{"messages":[],"maxTokens":1.0}`, `{"messages":[],"maxTokens":1.0}`},
		{"roots", `{"roots":{}}`, policy.AskRoots, `{"x":1.0}`, `{"x":1.0}`},
		{"an unknown method", `{}`, "future/ask", odd, odd},
		{"a URL", `{"elicitation":{"url":{},"form":{}}}`, policy.AskElicitation, `{"mode":"url","message":"go","url":"https://x.example/a?b"}`, `{"mode":"url","message":"[quiz] go","url":"https://x.example/a?b"}`},
		{"a URL of this machine", `{"elicitation":{"url":{}}}`, policy.AskElicitation, `{"mode":"url","message":"go","url":"http://127.0.0.1:1/"}`, `{"mode":"url","message":"[quiz] go","url":"http://127.0.0.1:1/"}`},
		{"a form beside URLs", `{"elicitation":{"url":{},"form":{}}}`, policy.AskElicitation, `{"mode":"form","message":"m"}`, `{"mode":"form","message":"[quiz] m"}`},
		{"no message at all", elicits, policy.AskElicitation, `{"mode":"form"}`, `{"mode":"form","message":"[quiz] "}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := build(t, []Server{asking(t, web).server()}, withRules("quiz", everyTool, askAll))
			s := h.legacy("/mcp/quiz", "uid:1000", c.caps)
			r := s.begin("tools/call", fmt.Sprintf(`{"name":"t","arguments":{"method":%q,"params":%s}}`, c.method, c.params))
			q := r.next()
			equal(t, "question", field(q, "params"), c.want)
			s.post(`{"jsonrpc":"2.0","id":` + field(q, "id") + `,"error":{"code":-1,"message":"no","data":1.0}}`)
			equal(t, "answer", field(r.end(), "result", "answer", "error"), `{"code":-1,"message":"no","data":1.0}`)
		})
	}
}

// A capability that policy does not allow is not declared to the server.
func TestCapabilitiesAreNarrowed(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "both")
	h := build(t, []Server{s.server()})
	h.legacy("/mcp/s", "uid:1000", `{"roots":{"listChanged":true},"elicitation":{"form":{}},"sampling":{},"experimental":{"x":{}}}`)
	equal(t, "legacy", field(string(s.last("initialize").Params), "capabilities"), `{"elicitation":{"form":{}},"experimental":{"x":{}}}`)
	m := h.modern("/mcp/s", "uid:1000")
	m.caps = `{"sampling":{},"elicitation":{},"extensions":{"x":{}},"roots":{}}`
	m.tool("t", "")
	equal(t, "modern", field(string(s.last("tools/call").Params), "_meta", "io.modelcontextprotocol/clientCapabilities"), `{"elicitation":{},"extensions":{"x":{}}}`)
}

// A question that a server asks right after the handshake waits for the
// client's stream. Servers ask for roots at that moment, before the session has
// its answer.
func TestQuestionRightAfterInitialize(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			answers := make(chan string, 1)
			s.onNotification = func(q *query) {
				if q.Method == "notifications/initialized" {
					go func() { answers <- q.put(policy.AskRoots, `{}`) }()
				}
			}
			h := build(t, []Server{s.server()}, withRules("s", everyTool, askAll))
			c := h.legacy("/mcp/s", "uid:1000", `{"roots":{}}`)
			stream := c.listen()
			q := stream.next()
			equal(t, "question", field(q, "method"), `"roots/list"`)
			c.answer(q, `{"roots":[{"uri":"file:///w"}]}`)
			contains(t, "answer", <-answers, `"result":{"roots":[{"uri":"file:///w"}]}`)
		})
	}
}

func TestServerTakesItsQuestionBack(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		id, answer := q.question()
		q.emit([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"m"}}`))
		q.arrive()
		q.notify("notifications/cancelled", `{"requestId":`+id+`}`)
		q.arrive()
		select {
		case a := <-answer:
			q.result(`{"answered":%s}`, a)
		default:
			q.result(`{"answered":null}`)
		}
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", elicits)
	r := c.begin("tools/call", `{"name":"t"}`)
	q := r.nextOf(policy.AskElicitation)
	s.proceed <- struct{}{}
	back := r.nextOf("notifications/cancelled")
	equal(t, "the client's own id", field(back, "params", "requestId"), field(q, "id"))
	c.answer(q, `{"action":"accept"}`)
	h.recorded("the end of the question", func(r record) bool { return r.Kind == audit.Outcome && r.Action == policy.AskElicitation })
	s.proceed <- struct{}{}
	equal(t, "an answer to a question that was taken back", field(r.end(), "result", "answered"), "null")
}

// A server can have question.OpenQuestions questions open at once. One more is
// declined.
func TestFloodOfQuestionsIsBounded(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		ask := func(id string) chan string {
			answer := make(chan string, 1)
			q.mu.Lock()
			q.answers[id] = answer
			q.mu.Unlock()
			q.emit([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{"message":"m"}}`))
			return answer
		}
		for i := range question.OpenQuestions {
			ask(fmt.Sprint(i))
		}
		q.result(`{"refused":%s}`, q.wait(ask("999")))
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", elicits)
	contains(t, "one too many", c.tool("t", ""), `"id":999,"result":{"action":"decline"}`)
	eventually(t, "the others are decided", func() bool { return h.count(policy.AskElicitation, "s") >= question.OpenQuestions })
	if n := h.count(policy.AskElicitation, "s"); n != question.OpenQuestions {
		t.Errorf("%d questions were decided", n)
	}
}

// A question ends with the connection that asked it: a later answer does not
// reach the connection that took its place.
func TestQuestionEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		switch q.name() {
		case "ask":
			q.emit([]byte(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"m"}}`))
			q.result(`{}`)
		case "die":
			q.conn.close()
		default:
			q.result(`{}`)
		}
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/s", "uid:1000", elicits)
	stream := c.listen()
	r := c.begin("tools/call", `{"name":"ask"}`)
	ask := ""
	select {
	case ask = <-r.msgs:
	case ask = <-stream.msgs:
	}
	if field(ask, "method") == "" { // the answer was first: the question follows on the other stream
		ask = stream.next()
	}
	c.tool("die", "")
	d := h.decided(policy.AskElicitation, "s")
	equal(t, "outcome", h.outcome(d), "unanswered")
	c.tool("again", "")
	c.answer(ask, `{"action":"accept"}`)
	c.tool("again", "")
	for _, q := range s.got("") {
		if q.n == 2 {
			t.Errorf("the second child was given an answer: %s", q.raw)
		}
	}
}
