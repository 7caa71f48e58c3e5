package relay

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

// everyQuestion are the capabilities of a client that can be asked everything.
const everyQuestion = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}`

// interview is a modern server that asks in rounds before it answers. Its state
// counts them.
func interview(t *testing.T, start func(*testing.T, string, string) *script, rounds ...string) *script {
	s := start(t, "quiz", "modern")
	s.serve = func(q *query) {
		n := 0
		if state, ok := rawjson.GetString(q.Params, "requestState"); ok {
			fmt.Sscanf(state, "round \u0000%d", &n)
		}
		if n < len(rounds) {
			q.result(`{"resultType":"input_required",%s"requestState":"round \u0000%d"}`, rounds[n], n+1)
			return
		}
		q.result(`{"resultType":"complete","content":[],"last":%s,"meta":%s}`, orNull(rawjson.Get(q.Params, "inputResponses")), orNull(rawjson.Get(q.Params, "_meta")))
	}
	return s
}

// A legacy client is asked on its session what a modern server needs, in as many
// rounds as that takes, with several questions at once.
func TestModernServerAsksALegacyClient(t *testing.T) {
	t.Parallel()
	const ask = `"inputRequests":{"n\u0061me":{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object"},"x":1.0}},"model":{"method":"sampling/createMessage","params":{"maxTokens":1.0}},"dirs":{"method":"roots/list"}},`
	const url = `"inputRequests":{"u":{"method":"elicitation/create","params":{"mode":"url","message":"go","url":"https://x.example/"}}},`
	for kind, start := range transports {
		for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
			for _, path := range []string{"/mcp/quiz", "/mcp"} {
				t.Run(kind+" "+method+" "+path, func(t *testing.T) {
					t.Parallel()
					s := interview(t, start, ask, "", url)
					h := build(t, []Server{s.server()}, withRules("quiz", everyTool, askAll))
					c := h.legacy(path, "uid:1000", everyQuestion)
					r := c.begin(method, paramsOf(method, path))
					answers := map[string]string{
						policy.AskElicitation: `{"action":"accept","content":{"n":1.0}}`, policy.AskSampling: `{"role":"assistant","model":"m"}`, policy.AskRoots: `{"roots":[]}`}
					for range 3 {
						q := r.next()
						if text(q, "method") == policy.AskElicitation {
							equal(t, "elicitation", field(q, "params"), `{"message":"[quiz] who?","requestedSchema":{"type":"object"},"x":1.0}`)
						}
						c.answer(q, answers[text(q, "method")])
					}
					q := r.next()
					id := text(q, "params", "elicitationId")
					equal(t, "url", field(q, "params"), `{"mode":"url","message":"[quiz] go","url":"https://x.example/","elicitationId":"`+id+`"}`)
					if !strings.HasPrefix(id, "doorward-") {
						t.Errorf("the id of a URL elicitation: %q", id)
					}
					c.answer(q, `{"action":"accept"}`)
					end := r.end()
					equal(t, "the last answer", field(end, "result", "last"), `{"u":{"action":"accept"}}`)
					equal(t, "declared", field(end, "result", "meta", wire.MetaCapabilities), `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`)
					equal(t, "completed", strings.Join(r.before, " "), `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"`+id+`"}}`)
					first := s.got(method)[1]
					responses := rawjson.Get(first.Params, "inputResponses")
					equal(t, "answers", field(string(responses), "name")+field(string(responses), "model")+field(string(responses), "dirs"),
						answers[policy.AskElicitation]+answers[policy.AskSampling]+answers[policy.AskRoots])
					if n := len(s.got(method)); n != 4 {
						t.Errorf("%d rounds", n)
					}
					for _, action := range []string{policy.AskElicitation, policy.AskSampling, policy.AskRoots} {
						equal(t, "recorded", h.outcome(h.decided(action, "quiz")), "ok")
					}
				})
			}
		}
	}
}

// paramsOf is a request about the object a of the server quiz.
func paramsOf(method, path string) string {
	name := map[string]string{"/mcp/quiz": "a", "/mcp": "quiz__a"}[path]
	if method == "resources/read" {
		return `{"uri":"` + map[string]string{"/mcp/quiz": "x:/a", "/mcp": "doorward://quiz/x:/a"}[path] + `"}`
	}
	return `{"name":"` + name + `","arguments":{"v":1.0}}`
}

// A legacy client that declines, cancels or fails an elicitation has this told to the
// server. An error in place of another answer ends the call.
func TestLegacyClientThatGivesNoInput(t *testing.T) {
	t.Parallel()
	elicitation := `"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}},`
	for _, c := range []struct{ what, ask, answer, want string }{
		{"declined", elicitation, `"result":{"action":"decline"}`, `{"k":{"action":"decline"}}`},
		{"cancelled", elicitation, `"result":{"action":"cancel"}`, `{"k":{"action":"cancel"}}`},
		{"an error for an elicitation", elicitation, `"error":{"code":-1,"message":"no"}`, `{"k":{"action":"cancel"}}`},
		{"an error for sampling", `"inputRequests":{"k":{"method":"sampling/createMessage","params":{}}},`, `"error":{"code":-1,"message":"no"}`, "-32603"},
		{"an error for roots", `"inputRequests":{"k":{"method":"roots/list"}},`, `"error":{"code":-1,"message":"no"}`, "-32603"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			s := interview(t, web, c.ask)
			h := build(t, []Server{s.server()}, withRules("quiz", everyTool, askAll))
			client := h.legacy("/mcp/quiz", "uid:1000", everyQuestion)
			r := client.begin("tools/call", `{"name":"a"}`)
			client.post(`{"jsonrpc":"2.0","id":` + field(r.next(), "id") + `,` + c.answer + `}`)
			end := r.end()
			equal(t, "end", field(end, "result", "last")+code(end), c.want)
		})
	}
}

// A client is not asked what it did not declare or policy denies, and a server is
// not told that it could be.
func TestModernServerMayNotAskALegacyClient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, caps, method string
		ask                policy.List
		declared           string
	}{
		{"not declared", `{}`, policy.AskElicitation, askAll, `{}`},
		{"denied", everyQuestion, policy.AskElicitation, policy.List{}, `{}`},
		{"sampling by default", everyQuestion, policy.AskSampling, elicitation, `{"elicitation":{"form":{},"url":{}}}`},
		{"roots by default", everyQuestion, policy.AskRoots, elicitation, `{"elicitation":{"form":{},"url":{}}}`},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			s := interview(t, web, `"inputRequests":{"k":{"method":"`+c.method+`","params":{"message":"canary"}}},`)
			h := build(t, []Server{s.server()}, withRules("quiz", everyTool, c.ask))
			r := h.legacy("/mcp/quiz", "uid:1000", c.caps).begin("tools/call", `{"name":"a"}`)
			equal(t, "end", code(r.end()), "1502")
			if len(r.before) != 0 {
				t.Errorf("the client was asked: %s", r.before)
			}
			equal(t, "declared", field(string(s.last("tools/call").Params), "_meta", wire.MetaCapabilities), c.declared)
		})
	}
}

// A server that asks for a repeat without a question gets it. A server that never ends
// is stopped after failure.MaxRounds rounds.
func TestRoundsEnd(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	s := web(t, "quiz", "modern")
	s.serve = func(q *query) {
		if n := calls.Add(1); q.name() == "busy" && n == 3 {
			q.result(`{"resultType":"complete","content":[]}`)
			return
		}
		if q.name() == "busy" {
			q.result(`{"resultType":"input_required","requestState":"later"}`)
			return
		}
		q.result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"again?"}}}}`)
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/quiz", "uid:1000", elicits)
	equal(t, "a busy server", field(c.tool("busy", ""), "result"), `{"content":[]}`)
	calls.Store(0)
	r := c.begin("tools/call", `{"name":"endless"}`)
	for range failure.MaxRounds {
		c.answer(r.next(), `{"action":"decline"}`)
	}
	equal(t, "an endless server", code(r.end()), "1502")
	if n := calls.Load(); n != failure.MaxRounds+1 {
		t.Errorf("%d calls", n)
	}
}

// The end of a legacy session during a round ends its call and the question.
func TestLegacyClientLeavesDuringARound(t *testing.T) {
	t.Parallel()
	s := interview(t, web, `"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}},`)
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/quiz", "uid:1000", elicits)
	r := c.begin("tools/call", `{"name":"a"}`)
	r.next()
	c.end()
	equal(t, "question", h.outcome(h.decided(policy.AskElicitation, "quiz")), "unanswered")
	equal(t, "call", h.outcome(h.decided("tools/call", "quiz/a")), "cancelled")
	if n := len(s.got("tools/call")); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A server that ends while its client is asked gets the next round in its next process:
// no round is run twice, and no question asked twice.
func TestServerEndsBetweenRounds(t *testing.T) {
	t.Parallel()
	const ask = `"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}},`
	for round := range 3 {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			t.Parallel()
			s := interview(t, stdio, ask, ask, ask)
			h := build(t, []Server{s.server()})
			c := h.legacy("/mcp/quiz", "uid:1000", elicits)
			r := c.begin("tools/call", `{"name":"a"}`)
			for n := range 3 {
				q := r.nextOf(policy.AskElicitation)
				if n == round {
					s.open()[0].close()
					eventually(t, "Doorward knows that it has ended", func() bool { return h.relay.Status()[0].Instances == 0 })
				}
				c.answer(q, `{"action":"accept"}`)
			}
			equal(t, "end", field(r.end(), "result", "last"), `{"k":{"action":"accept"}}`)
			if n := len(s.got("tools/call")); n != 4 {
				t.Errorf("%d rounds were run", n)
			}
		})
	}
}

// A server that refuses a later round ends the call. The call is not sent again,
// because the rounds before were run.
func TestLaterRoundIsRefused(t *testing.T) {
	t.Parallel()
	s := web(t, "quiz", "modern")
	s.setList("tools/list", `{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"v":{"type":"string","x-mcp-header":"V"}}}}]}`)
	s.serve = func(q *query) {
		if rawjson.Get(q.Params, "requestState") != nil {
			q.fail(-32020, "other headers")
			return
		}
		q.result(`{"resultType":"input_required","requestState":"1","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}}}}`)
	}
	h := build(t, []Server{s.server()})
	c := h.legacy("/mcp/quiz", "uid:1000", elicits)
	r := c.begin("tools/call", `{"name":"a","arguments":{"v":"x"}}`)
	c.answer(r.nextOf(policy.AskElicitation), `{"action":"accept"}`)
	equal(t, "end", code(r.end()), "1502")
	if n := len(s.got("tools/call")); n != 2 {
		t.Errorf("%d rounds were run", n)
	}
}
