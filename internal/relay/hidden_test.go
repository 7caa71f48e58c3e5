package relay

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

const (
	everyCapability = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`
	oneTask         = `"task-1"`
)

// bait is a server's message with a question somewhere in it, which holds a canary.
type bait struct {
	canary  string
	request string // the client's request that it comes with
	carrier string // how the server says it
	method  string // of what it says, where that has one
	body    string // raw, with the question in it
}

// baits makes baits.
type baits struct {
	attempts
	n      int
	prefix string // of the canaries
}

func (b *baits) one() bait {
	b.n++
	x := bait{canary: fmt.Sprintf("%s-%d-%d.", b.prefix, b.n, b.Uint32())}
	x.request = pick(b.attempts, "tools/call", "tools/call", "prompts/get", "resources/read", "tasks/get", "tasks/get", "tasks/update", "completion/complete", "future/method", "tools/list", "resources/list", "logging/setLevel")
	x.carrier = pick(b.attempts, "result", "result", "result", "error", "url error", "error's own", "notification", "notification", "late notification", "request", "late request", "request as notification", "batch", "late batch")
	x.method = pick(b.attempts, "notifications/progress", "notifications/message", "notifications/tasks", "notifications/tasks/status", "notifications/future", protocol.ToolsChanged, protocol.ResourceUpdated, "notifications/elicitation/complete")
	x.body = b.nested(b.carrying(x.canary))
	switch x.carrier {
	case "request", "late request", "request as notification", "batch", "late batch":
		x.method = pick(b.attempts, "elicitation/create", "sampling/createMessage", "roots/list", "Sampling/createMessage", " roots/list", "ELICITATION/CREATE")
		x.body = b.params(x.method, x.canary)
		if b.IntN(4) == 0 {
			x.method, x.body = "future/ask", b.nested(b.carrying(x.canary))
		}
	}
	return x
}

// nested puts an object into others, to any depth.
func (b *baits) nested(object string) string {
	for b.IntN(2) == 0 {
		switch rest := object[1:]; b.IntN(10) {
		case 0:
			object = `{"task":` + object + `}`
		case 1:
			object = `{"tasks":[{},` + object + `]}`
		case 2:
			object = `{"_meta":{"x.example/y":` + object + `}}`
		case 3:
			object = `{"structuredContent":` + object + `,"content":[]}`
		case 4:
			object = `{"content":[{"type":"text","text":"inputRequests"},` + object + `]}`
		case 5:
			object = `{"a":{"b":[0,[` + object + `]]}}`
		case 6:
			object = `{"status":"failed","error":{"code":-32042,"message":"m","data":` + object + `}}`
		case 7:
			object = `{"tools":[` + object + `],"resources":[` + object + `]}`
		case 8:
			object = `{"inputRequests":{"k":` + object + `}}`
		default:
			if !strings.Contains(object, `"resultType"`) {
				object = `{"resultType":"` + pick(b.attempts, "input_required", "complete", "task") + `","taskId":` + oneTask + `,"status":"input_required",` + rest
			}
		}
	}
	return object
}

// carrying is an object with one question in it.
func (b *baits) carrying(canary string) string {
	method := pick(b.attempts, "elicitation/create", "sampling/createMessage", "roots/list", "Sampling/createMessage", "sampling/createMessage ")
	params := b.params(method, canary)
	name := string(rawjson.AppendQuote(nil, method))
	ask := pick(b.attempts, `{"method":`+name+`,"params":`+params+`}`, `{"params":`+params+`,"x":1,"method":`+name+`}`, `{"method":`+name+`,"params":`+params+`}`,
		`{"METHOD":`+name+`,"params":`+params+`}`, `{"method":`+name+`,"params":{},"Params":`+params+`}`, `{"method":`+name+`,"p\u0061rams":`+params+`}`)
	return pick(b.attempts, `{"inputRequests":{"k":`+ask+`}}`, `{"inputRequests":{"k":`+ask+`}}`, `{"inputRequests":{"a":{"method":"roots/list"},"k":`+ask+`}}`,
		`{"input_requests":{"k":`+ask+`}}`, `{"INPUT_REQUESTS":[`+ask+`]}`, `{"input\u005frequests":{"k":`+ask+`}}`, `{"input-requests":{"k":`+ask+`}}`, "{\"input_reque\u017fts\":{\"k\":"+ask+`}}`,
		`{"inputRequests":[`+ask+`]}`, `{"inputRequest\u0073":{"k":`+ask+`}}`, `{"InputRequests":{"k":`+ask+`}}`, "{\"inputReque\u017fts\":{\"k\":"+ask+`}}`,
		`{"elicitations":[`+b.params("url", canary)+`]}`, `{"Elicitations":[{},`+b.params("url", canary)+`]}`)
}

// params are those of one question.
func (b *baits) params(method, canary string) string {
	text := string(rawjson.AppendQuote(nil, canary))
	switch bare := strings.ToLower(strings.TrimSpace(method)); bare {
	case "sampling/createmessage":
		return `{"messages":[{"role":"user","content":{"type":"text","text":` + text + `}}],"maxTokens":1}`
	case "roots/list":
		return `{"_meta":{"x.example/y":` + text + `}}`
	case "url":
		return pick(b.attempts, `{"mode":"url","elicitationId":"1","url":"https://x.example/","message":`+text+`}`, `{"url":"https://x.example/","message":`+text+`}`,
			`{"mode":"url","url":"http://x.example/","message":`+text+`}`, `{"mode":"url","elicitationId":"1","URL":"https://x.example/","message":`+text+`}`)
	}
	return pick(b.attempts, `{"mode":"form","message":`+text+`,"requestedSchema":{"type":"object","properties":{}}}`, `{"message":`+text+`}`, `{"message":"m","Message":`+text+`}`,
		`{"mode":"url","message":`+text+`,"url":"https://x.example/"}`, `{"mode":"Url","message":`+text+`,"url":"https://x.example/"}`)
}

// trap is a server that sends the bait that the test has set, with the next request
// of the right method.
type trap struct {
	*script
	mu     sync.Mutex
	next   bait
	sprung int // baits that were said
}

func setTrap(t *testing.T, start func(*testing.T, string, string) *script, era string) *trap {
	p := &trap{script: start(t, "s", era)}
	for method := range p.lists {
		p.setList(method, "")
	}
	p.serve = p.spring
	return p
}

func (p *trap) spring(q *query) {
	p.mu.Lock()
	var x bait
	if q.Method == p.next.request {
		x, p.next = p.next, bait{}
		p.sprung++
	}
	p.mu.Unlock()
	late := func() {}
	switch x.carrier {
	case "result":
		q.result("%s", x.body)
		return
	case "error", "url error":
		code := map[string]int{"error": -32603, "url error": -32042}[x.carrier]
		q.emit(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"m","data":%s}}`, q.ID, code, x.body))
		return
	case "error's own":
		q.emit(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"m","more":%s}}`, q.ID, x.body))
		return
	case "notification":
		body := x.body
		if token := field(string(q.Params), "_meta", "progressToken"); token != "" {
			body = string(rawjson.Set([]byte(body), rawjson.Edit{Key: "progressToken", Value: []byte(token)}, rawjson.Edit{Key: "progress", Value: []byte("1")}))
		}
		q.notify(x.method, body)
	case "late notification":
		late = func() { q.tell(x.method, x.body) }
	case "request as notification":
		q.notify(x.method, x.body)
	case "request":
		q.emit(rawjson.AppendRequest(nil, wire.ID(`"ask-`+x.canary+`"`), x.method, []byte(x.body)))
	case "batch":
		q.emit(batch(x))
	case "late batch":
		late = func() { q.say(batch(x)) }
	case "late request":
		late = func() { q.say(rawjson.AppendRequest(nil, wire.ID(`"ask-`+x.canary+`"`), x.method, []byte(x.body))) }
	}
	q.result(`{"tools":[],"resources":[]}`)
	late()
}

// batch is a question and a notification in one array.
func batch(x bait) []byte {
	ask := rawjson.AppendRequest(nil, wire.ID(`"ask-`+x.canary+`"`), x.method, []byte(x.body))
	return slices.Concat([]byte("["), ask, []byte(","), rawjson.AppendNotification(nil, "notifications/future", nil), []byte("]"))
}

// setOff sets a bait and has a caller send the request for it.
func (p *trap) setOff(c caller, h *house, route string, x bait) {
	p.mu.Lock()
	p.next = x
	p.mu.Unlock()
	id, err := h.seal.SealTask([]byte(oneTask), principal.New("uid:1000"), "s")
	if err != nil {
		h.t.Fatal(err)
	}
	tool, uri := `"t"`, `"file:///a"`
	if route == "" {
		tool, uri = `"s__t"`, `"doorward://s/file:///a"`
	}
	params := map[string]string{"tools/call": `{"name":` + tool + `,"_meta":{"progressToken":"p"}}`, "prompts/get": `{"name":` + tool + `}`, "resources/read": `{"uri":` + uri + `}`,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":` + tool + `},"argument":{"name":"a","value":""}}`,
		"tasks/get":           `{"taskId":` + string(id) + `}`, "tasks/update": `{"taskId":` + string(id) + `,"inputResponses":{}}`, "logging/setLevel": `{"level":"info"}`}[x.request]
	if params == "" {
		params = `{}`
	}
	c.say(x.request, params, true)
}

// traps are servers of each era, behind each kind of connection.
var traps = []struct{ kind, era string }{{"stdio", "legacy"}, {"http", "legacy"}, {"http", "modern"}, {"stdio", "modern"}}

// everyTrap runs f for each kind of caller and of server.
func everyTrap(t *testing.T, caps string, ask policy.List, f func(t *testing.T, h *house, p *trap, c caller, route string)) {
	for _, kind := range traps {
		t.Run(kind.kind+" "+kind.era, func(t *testing.T) {
			t.Parallel()
			everyCaller(t, "s", func(t *testing.T, route, _ string, open func(*house, string) caller) {
				p := setTrap(t, transports[kind.kind], kind.era)
				h := build(t, []Server{p.server()}, withRules("s", everyTool, ask))
				f(t, h, p, open(h, caps), route)
			})
		})
	}
}

// A question that policy denies or the client did not declare does not reach the
// client, wherever in a message it stands.
func TestNoPartOfAQuestionReachesWhoIsNotToBeAsked(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		caps string
		ask  policy.List
	}{
		"denied by policy":           {everyCapability, policy.List{}},
		"not declared by the client": {`{}`, askAll},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			everyTrap(t, c.caps, c.ask, func(t *testing.T, h *house, p *trap, c caller, route string) {
				made := &baits{attempts: attempts{seeded(t)}, prefix: "canary"}
				for range 60 {
					x := made.one()
					p.setOff(c, h, route, x)
					if strings.Contains(c.heard(), x.canary) {
						t.Fatalf("the client got the canary of %+v", x)
					}
				}
				h.flush()
				if strings.Contains(c.heard(), "canary") {
					t.Errorf("the client got a canary late:\n%s", c.heard())
				}
				if p.sprung < 15 { // else nothing was tried
					t.Errorf("the server said %d messages", p.sprung)
				}
			})
		})
	}
}

// With elicitation allowed, each elicitation arrives with the server's name and has
// a record. No other question arrives.
func TestQuestionsComeLabelledAndRecorded(t *testing.T) {
	t.Parallel()
	var all, ran atomic.Int64
	t.Cleanup(func() { // most baits are no elicitations that may pass
		if n := all.Load(); n < 30 && ran.Load() == int64(2*len(traps)*len(callers)) { // -run may choose a few
			t.Errorf("%d labelled questions arrived", n)
		}
	})
	everyTrap(t, everyCapability, elicitation, func(t *testing.T, h *house, p *trap, c caller, route string) {
		made := &baits{attempts: attempts{seeded(t)}, prefix: "canary"}
		for range 60 {
			p.setOff(c, h, route, made.one())
		}
		h.flush()
		labelled := 0
		for _, msg := range strings.Split(c.heard(), "\n") {
			plain, withName := strings.Count(msg, "canary"), strings.Count(msg, "[s] canary")
			if plain != withName {
				t.Errorf("a question without its server's name: %s", msg)
			}
			if withName > 0 && (strings.Contains(msg, "sampling/") || strings.Contains(msg, "roots/")) {
				t.Errorf("more than elicitation: %s", msg)
			}
			if withName > 0 && !strings.Contains(t.Name(), protocol.V20260728) && field(msg, "method") != `"elicitation/create"` && strings.Contains(msg, `elicitation/create`) {
				t.Errorf("a question that this era has no answer to: %s", msg)
			}
			labelled += withName
		}
		all.Add(int64(labelled))
		ran.Add(1)
		if p.sprung < 15 { // else nothing was tried
			t.Errorf("the server said %d messages", p.sprung)
		}
		if n := h.count(policy.AskElicitation, "s"); n < labelled {
			t.Errorf("%d questions came, %d were recorded", labelled, n)
		}
	})
}

// A question passes in each place where it is part of the protocol.
func TestQuestionsPassWhereTheProtocolHasThem(t *testing.T) {
	t.Parallel()
	const ask = `{"method":"elicitation/create","params":{"message":"who?"}}`
	for _, c := range []struct {
		what, server, client string
		x                    bait
	}{
		{"a result", "modern", protocol.V20260728, bait{request: "tools/call", carrier: "result", body: `{"resultType":"input_required","inputRequests":{"k":` + ask + `}}`}},
		{"a task that is asked for", "modern", protocol.V20260728, bait{request: "tasks/get", carrier: "result", body: `{"taskId":"task-1","status":"input_required","inputRequests":{"k":` + ask + `}}`}},
		{"a task that is answered", "modern", protocol.V20260728, bait{request: "tasks/update", carrier: "result", body: `{"taskId":"task-1","status":"input_required","inputRequests":{"k":` + ask + `}}`}},
		{"a request", "legacy", protocol.V20251125, bait{request: "tools/call", carrier: "request", method: policy.AskElicitation, body: `{"message":"who?"}`}},
		{"a request outside a call", "legacy", protocol.V20251125, bait{request: "tools/call", carrier: "late request", method: policy.AskElicitation, body: `{"message":"who?"}`}},
		{"an error", "legacy", protocol.V20251125, bait{request: "tools/call", carrier: "url error", body: `{"elicitations":[{"mode":"url","elicitationId":"1","url":"https://x.example/","message":"who?"}]}`}},
	} {
		for _, route := range []string{"", "s"} {
			if route == "" && strings.HasPrefix(c.x.request, "tasks/") {
				continue // tasks are not carried there
			}
			t.Run(c.what+" /"+route, func(t *testing.T) {
				t.Parallel()
				p := setTrap(t, stdio, c.server)
				h := build(t, []Server{p.server()})
				client := overHTTP(h, route, c.client, everyCapability)
				p.setOff(client, h, route, c.x)
				d := h.decided(policy.AskElicitation, "s")
				eventually(t, "the question comes with its server's name", func() bool { return strings.Contains(client.heard(), `"[s] who?"`) })
				equal(t, "decision", d.Decision, audit.Allow)
				if o := h.outcome(d); o != "asked" && o != "ok" {
					t.Errorf("outcome %s", o)
				}
			})
		}
	}
}

// A server with a question in its handshake is not connected.
func TestQuestionInAHandshake(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		s := web(t, "s", era)
		s.caps = `{"tools":{},"experimental":{"x":{"inputRequests":{"k":{"method":"sampling/createMessage","params":{"x":"canary"}}}}}}`
		h := build(t, []Server{s.server()}, withRules("s", everyTool, askAll))
		end := h.modern("/mcp/s", "uid:1000").call("server/discover", `{}`)
		if code(end) != "1502" || strings.Contains(end, "canary") {
			t.Errorf("%s: %s", era, end)
		}
	}
}

// A question fails its call if the client could read it differently from Doorward,
// or cannot answer it.
func TestQuestionsThatNoClientCanTake(t *testing.T) {
	t.Parallel()
	const ask = `{"k":{"method":"elicitation/create","params":{"message":"canary"}}}`
	for _, c := range []struct{ what, server, client, carrier, body string }{
		{"a URL without its mode", "legacy", protocol.V20251125, "url error", `{"elicitations":[{"message":"canary","url":"http://x.example/"}]}`},
		{"a URL in the clear", "legacy", protocol.V20251125, "url error", `{"elicitations":[{"mode":"url","message":"canary","url":"http://x.example/"}]}`},
		{"the same inside a failed task", "modern", protocol.V20260728, "result", `{"status":"failed","error":{"code":-32042,"message":"m","data":{"elicitations":[{"message":"canary","url":"http://x.example/"}]}}}`},
		{"a legacy server's round trip", "legacy", protocol.V20260728, "result", `{"resultType":"input_required","inputRequests":` + ask + `,"requestState":"canary"}`},
		{"a modern server's with two readings, to a legacy client", "modern", protocol.V20251125, "result", `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"canary"},"Params":{"message":"m"}}}}`},
		{"a modern server's that is no question, to a legacy client", "modern", protocol.V20251125, "result", `{"resultType":"input_required","inputRequests":{"k":{"method":"canary/ask","params":{}}}}`},
		{"in a result that does not say so", "modern", protocol.V20251125, "result", `{"content":[],"inputRequests":` + ask + `}`},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			p := setTrap(t, web, c.server)
			h := build(t, []Server{p.server()}, withRules("s", everyTool, askAll))
			client := overHTTP(h, "s", c.client, everyCapability)
			p.setOff(client, h, "s", bait{request: "tools/call", carrier: c.carrier, body: c.body})
			contains(t, "answer", client.heard(), `"code":1502`)
			if strings.Contains(client.heard(), "canary") {
				t.Errorf("the client got %s", client.heard())
			}
		})
	}
}
