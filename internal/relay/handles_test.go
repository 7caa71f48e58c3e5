package relay

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// quizzing is a modern server that asks before it answers.
func quizzing(t *testing.T, start func(*testing.T, string, string) *script) *script {
	s := start(t, "quiz", "modern")
	s.serve = func(q *query) {
		switch {
		case rawjson.Get(q.Params, "inputResponses") == nil:
			q.result(`{"resultType":"input_required","inputRequests":{"k\u0065y":{"method":"elicitation/create","params":%s,"y":1.0}},"requestState":"inner é\u0000","x":1.0}`, form)
		default:
			q.result(`{"resultType":"complete","state":%s,"responses":%s}`, orNull(rawjson.Get(q.Params, "requestState")), rawjson.Get(q.Params, "inputResponses"))
		}
	}
	return s
}

const retry = `{"key":{"action":"accept","content":{"n":1.0}}}`

func TestMultiRoundTrip(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := quizzing(t, start)
			h := build(t, []Server{s.server()})
			for _, path := range []string{"/mcp/quiz", "/mcp"} {
				m := h.modern(path, "uid:1000")
				m.caps = elicits
				name := "t"
				if path == "/mcp" {
					name = "quiz__t"
				}
				first := m.call("tools/call", `{"name":"`+name+`","arguments":{"a":1.0,"b":{"c":1,"d":2}}}`)
				equal(t, "question", field(first, "result", "inputRequests", "key"), strings.Replace(`{"method":"elicitation/create","params":`+form+`,"y":1.0}`, "who are you?", "[quiz] who are you?", 1))
				equal(t, "the rest", field(first, "result", "x"), "1.0")
				state := field(first, "result", "requestState")
				if strings.Contains(state, "inner") || !strings.HasPrefix(state, `"dw1.`) {
					t.Fatalf("the state is not sealed: %s", state)
				}
				for range 2 { // a client that lost the answer repeats it
					second := m.call("tools/call", `{"requestState":`+state+`,"inputResponses":`+retry+`,"name":"`+name+`","arguments":{"b":{"d":2,"c":1},"a":1.0}}`)
					equal(t, "state", field(second, "result", "state"), `"inner é\u0000"`)
					equal(t, "responses", field(second, "result", "responses"), retry)
				}
				equal(t, "responses without a state", field(m.call("tools/call", `{"name":"`+name+`","inputResponses":null}`), "result", "state"), "null")
			}
			d := h.decided(policy.AskElicitation, "quiz")
			equal(t, "outcome of the question", h.outcome(d), "asked")
		})
	}
}

func TestSealedStateIsBound(t *testing.T) {
	t.Parallel()
	s, other := quizzing(t, web), web(t, "other", "modern")
	h := build(t, []Server{s.server(), other.server()})
	var clock atomic.Int64
	h.seal.Now = func() time.Time { return time.Unix(1_800_000_000+clock.Load(), 0) }
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = elicits
	state := text(m.tool("t", `"a":1`), "result", "requestState")
	cursor, err := h.seal.SealCursor([]byte(`"inner"`), principal.New("uid:1000"), "quiz", "tools/list")
	if err != nil {
		t.Fatal(err)
	}
	try := func(m *modern, state, name, args string) string {
		return code(m.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{%s},"requestState":%q,"inputResponses":%s}`, name, args, state, retry)))
	}
	bad := func(what, got string) {
		t.Helper()
		if got != "-32602" {
			t.Errorf("%s: %q", what, got)
		}
	}
	before := len(s.got("tools/call"))
	bad("other principal", try(h.modern("/mcp/quiz", "token:bob"), state, "t", `"a":1`))
	bad("other tool", try(m, state, "u", `"a":1`))
	bad("other arguments", try(m, state, "t", `"a":2`))
	bad("the same number in another form", try(m, state, "t", `"a":1.0`))
	bad("no arguments", try(m, state, "t", ``))
	bad("other server", try(h.modern("/mcp/other", "uid:1000"), state, "t", `"a":1`))
	bad("a tail", try(m, state+"-TAMPERED", "t", `"a":1`))
	bad("a bare state", try(m, "inner", "t", `"a":1`))
	bad("empty", try(m, "", "t", `"a":1`))
	bad("a cursor", try(m, strings.Trim(string(cursor), `"`), "t", `"a":1`))
	bad("no text", code(m.call("tools/call", `{"name":"t","arguments":{"a":1},"requestState":{"x":1}}`)))
	bad("as a cursor", code(m.call("tools/list", `{"cursor":"`+state+`"}`)))
	bad("other method", code(m.call("prompts/get", `{"name":"t","arguments":{"a":1},"requestState":"`+state+`"}`)))
	for i := len("dw1."); i < len(state); i += 7 {
		flipped := []byte(state)
		flipped[i] ^= 1
		bad(fmt.Sprint("flipped byte ", i), try(m, string(flipped), "t", `"a":1`))
	}
	clock.Store(3601)
	bad("expired", try(m, state, "t", `"a":1`))
	clock.Store(3599)
	equal(t, "in time", try(m, state, "t", `"a":1`), "")
	if n := len(s.got("tools/call")) - before; n != 1 {
		t.Errorf("%d bad retries reached the server", n-1)
	}
	equal(t, "outcome", h.outcome(h.decided("tools/call", "quiz/u")), "invalid")
}

// A call fails when its modern server asks what policy denies or the client did
// not declare, and the client is not asked.
func TestModernQuestionsThatMayNotBeAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, caps, asks string
		allow            policy.List
		recorded         string
	}{
		{"sampling by default", `{"sampling":{}}`, `{"k":{"method":"sampling/createMessage","params":{}}}`, elicitation, policy.AskSampling},
		{"roots by default", `{"roots":{}}`, `{"k":{"method":"roots/list"}}`, elicitation, policy.AskRoots},
		{"not declared", `{"sampling":{}}`, `{"k":{"method":"elicitation/create","params":{"message":"m"}}}`, askAll, policy.AskElicitation},
		{"a good one and a bad one", elicits, `{"a":{"method":"elicitation/create","params":{"message":"m"}},"b":{"method":"sampling/createMessage"}}`, askAll, policy.AskSampling},
		{"an unsafe URL", `{"elicitation":{"url":{}}}`, `{"k":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"http://evil.example"}}}`, askAll, policy.AskElicitation},
		{"an unknown method", elicits, `{"k":{"method":"future/ask"}}`, askAll, question.Other},
		{"no method", elicits, `{"k":{}}`, askAll, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := web(t, "s", "modern")
			s.serve = func(q *query) { q.result(`{"resultType":"input_required","inputRequests":%s}`, c.asks) }
			h := build(t, []Server{s.server()}, withRules("s", everyTool, c.allow))
			m := h.modern("/mcp/s", "uid:1000")
			m.caps = c.caps
			end := m.tool("t", "")
			equal(t, "code", code(end), "1502")
			if strings.Contains(end, "message\":\"m") {
				t.Errorf("the question got through: %s", end)
			}
			switch c.recorded {
			case "":
			case question.Other:
				h.decided(c.recorded, "s/future/ask")
			default:
				h.decided(c.recorded, "s")
			}
		})
	}
	t.Run("methods that may not ask", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "modern")
		s.setList("tools/list", `{"resultType":"input_required","inputRequests":{}}`)
		m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
		equal(t, "tools/list", code(m.call("tools/list", `{}`)), "1502")
	})
	t.Run("too many at once", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "modern")
		s.serve = func(q *query) {
			var asks []string
			for i := range question.OpenQuestions + 1 {
				asks = append(asks, fmt.Sprintf(`"k%d":{"method":"elicitation/create","params":{}}`, i))
			}
			q.result(`{"resultType":"input_required","inputRequests":{%s}}`, strings.Join(asks, ","))
		}
		m := build(t, []Server{s.server()}).modern("/mcp/s", "uid:1000")
		m.caps = elicits
		equal(t, "code", code(m.tool("t", "")), "1502")
	})
}

// paging answers tools/list with two pages.
func paging(s *script) {
	s.setList("tools/list", "")
	next := s.serve
	s.serve = func(q *query) {
		switch {
		case q.Method != "tools/list" && next != nil:
			next(q)
		case q.Method != "tools/list":
			q.result(`{"echo":%s}`, orNull(q.Params))
		case field(string(q.Params), "cursor") == "":
			q.result(`{"tools":[{"name":"a"}],"nextCursor":"%s é"}`, s.name)
		case text(string(q.Params), "cursor") == s.name+" é":
			q.result(`{"tools":[{"name":"b"}]}`)
		default:
			q.fail(-32602, "server: invalid cursor")
		}
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client, server, instances string
		sealed                    bool
	}{
		{"legacy", "legacy", "auto", false},
		{"legacy", "legacy", "principal", true},
		{"legacy", "modern", "auto", true},
		{"modern", "modern", "auto", true},
		{"modern", "legacy", "auto", true},
		{"modern", "legacy", "shared", true},
	} {
		t.Run(c.client+" client, "+c.server+" server, "+c.instances, func(t *testing.T) {
			t.Parallel()
			s, other := web(t, "s", c.server), web(t, "other", c.server)
			paging(s)
			paging(other)
			h := build(t, []Server{s.server(instances(c.instances)), other.server(instances(c.instances))})
			list := func(path, who, params string) string {
				if c.client == "modern" {
					return h.modern(path, who).call("tools/list", params)
				}
				return h.legacy(path, who, `{}`).call("tools/list", params)
			}
			first := list("/mcp/s", "uid:1000", `{}`)
			cursor := field(first, "result", "nextCursor")
			if sealed := strings.HasPrefix(cursor, `"dw1.`); sealed != c.sealed {
				t.Fatalf("cursor %s", cursor)
			}
			equal(t, "page 2", join(names(list("/mcp/s", "uid:1000", `{"cursor":`+cursor+`}`), "tools", "name")), "b")
			if c.sealed {
				equal(t, "empty", join(names(list("/mcp/s", "uid:1000", `{"cursor":""}`), "tools", "name")), join(names(first, "tools", "name")))
				for what, end := range map[string]string{
					"other principal": list("/mcp/s", "token:bob", `{"cursor":`+cursor+`}`),
					"other server":    list("/mcp/other", "uid:1000", `{"cursor":`+cursor+`}`),
					"bare":            list("/mcp/s", "uid:1000", `{"cursor":"s é"}`),
				} {
					equal(t, what, field(end, "error"), `{"code":-32602,"message":"Invalid cursor"}`)
				}
			}
		})
	}
}

func TestTasksAreBoundToTheirPrincipal(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.serve = func(q *query) {
		switch q.Method {
		case "tools/call":
			if q.name() == "plain" {
				q.result(`{"resultType":"complete","taskId":"not a task"}`)
				return
			}
			q.result(`{"resultType":"task","taskId":"task 7","status":"working","ttlMs":1.0}`)
		default:
			q.result(`{"resultType":"complete","taskId":%s,"status":"completed"}`, rawjson.Get(q.Params, "taskId"))
		}
	}
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/s", "uid:1000")
	made := m.tool("t", "")
	id := field(made, "result", "taskId")
	if !strings.HasPrefix(id, `"dw1.`) || field(made, "result", "ttlMs") != "1.0" {
		t.Fatalf("task: %s", made)
	}
	equal(t, "no task", field(m.tool("plain", ""), "result", "taskId"), `"not a task"`)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		equal(t, method+" keeps the client's words", field(m.call(method, `{"taskId":`+id+`}`), "result", "taskId"), id)
		q := s.last(method)
		equal(t, "the server's words", field(q.raw, "params", "taskId")+q.header["Mcp-Name"][0], `"task 7"task 7`)
		for what, end := range map[string]string{
			"another principal": h.modern("/mcp/s", "token:bob").call(method, `{"taskId":`+id+`}`),
			"the bare id":       m.call(method, `{"taskId":"task 7"}`),
		} {
			equal(t, method+" by "+what, field(end, "error"), `{"code":-32602,"message":"Unknown task"}`)
		}
		for _, id := range []string{id, `"task 7"`} {
			equal(t, method+" by a legacy client", text(h.legacy("/mcp/s", "uid:1000", `{}`).call(method, `{"taskId":`+id+`}`), "error", "message"), failure.OtherTasks.Message)
		}
		equal(t, method+" that arrived", fmt.Sprint(len(s.got(method))), "1")
	}
	t.Run("legacy tasks on a shared server", func(t *testing.T) {
		t.Parallel()
		s := web(t, "s", "legacy")
		h := build(t, []Server{s.server(instances("shared"))})
		equal(t, "tasks/list", code(h.legacy("/mcp/s", "uid:1000", `{}`).call("tasks/list", `{}`)), "-32601")
	})
}

// Opening a handle gives an error or what was sealed for exactly this use,
// whatever a client made of the handle.
func FuzzOpen(f *testing.F) {
	seal, err := seal.New(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	who := principal.New("uid:1000")
	t1 := aimed(f, "s", "tools/call", `{"name":"t","arguments":{"a":1}}`)
	state, _ := seal.SealState([]byte(`"inner"`), who, t1.Target)
	cursor, _ := seal.SealCursor([]byte(`"inner"`), who, "s", "tools/list")
	f.Add(string(state), "s", `{"a":1}`)
	f.Add(string(cursor), "s", `{"a":1}`)
	f.Add(`"dw1.`+base64.RawURLEncoding.EncodeToString(make([]byte, 40))+`"`, "", ``)
	f.Fuzz(func(t *testing.T, raw, server, args string) {
		if wire.ValidateValue([]byte(raw)) != nil || wire.ValidateValue([]byte(args)) != nil || server == "" {
			return
		}
		t2 := aimed(t, server, "tools/call", `{"name":"t","arguments":`+args+`}`)
		inner, err := seal.OpenState([]byte(raw), who, t2.Target)
		if err == nil && (string(inner) != `"inner"` || server != "s" || string(rawjson.Canonical([]byte(args))) != `{"a":1}`) {
			t.Errorf("%s opened for %s %s", raw, server, args)
		}
		if inner, err := seal.OpenCursor([]byte(raw), who, server, "tools/list"); err == nil && (server != "s" || string(inner) != `"inner"`) {
			t.Errorf("%s opened as a cursor", raw)
		}
		if _, err := seal.OpenTask([]byte(raw), who, server); err == nil {
			t.Errorf("%s opened as a task", raw)
		}
		if seal.IsPage([]byte(raw), who, t2.Target) {
			t.Errorf("%s opened as the state of the page", raw)
		}
	})
}

func TestSealerNeedsAKey(t *testing.T) {
	t.Parallel()
	if _, err := seal.New(make([]byte, 5)); err == nil {
		t.Error("a short key was taken")
	}
}
