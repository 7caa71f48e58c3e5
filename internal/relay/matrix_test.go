package relay

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

// cells are the pairs of eras, as client > server.
var cells = []struct{ name, client, server string }{
	{"legacy > legacy", "legacy", "legacy"}, {"modern > modern", "modern", "modern"},
	{"legacy > modern", "legacy", "modern"}, {"modern > legacy", "modern", "legacy"},
}

// pair is a client of one era and a server of one era with Doorward between them.
type pair struct {
	*house
	s                          *script
	client, server, door, path string
	caps                       string
	legacyOne                  *session
	one                        *talk
}

func newPair(t *testing.T, start func(*testing.T, string, string) *script, client, server, door, path string) *pair {
	p := &pair{client: client, server: server, door: door, path: path, caps: everyQuestion}
	p.s = exhibit(t, start, server)
	p.house = build(t, []Server{p.s.server()}, withRules("s", everyTool, askAll))
	return p
}

// name is an object of the server in the words of the path.
func (p *pair) name(n string) string {
	if p.path == "/mcp" {
		return "s__" + n
	}
	return n
}

func (p *pair) uri(u string) string {
	if p.path == "/mcp" {
		return "doorward://s/" + u
	}
	return u
}

// session is the legacy client.
func (p *pair) session() *session {
	if p.legacyOne == nil {
		p.legacyOne = p.legacy(p.path, "uid:1000", p.caps)
	}
	return p.legacyOne
}

func (p *pair) modernClient(meta ...rawjson.Edit) *modern {
	m := p.modern(p.path, "uid:1000")
	m.caps = p.caps
	m.meta = append([]rawjson.Edit{{Key: wire.MetaClientInfo, Value: []byte(`{"name":"tester","version":"9"}`)}}, meta...)
	return m
}

// answers are what the client says to each question.
var answers = map[string]string{
	policy.AskElicitation: `{"action":"accept","content":{"n":1.0}}`,
	policy.AskSampling:    `{"role":"assistant","content":{"type":"text","text":"s"},"model":"m"}`,
	policy.AskRoots:       `{"roots":[{"uri":"file:///r"}]}`,
}

// call makes a request and answers what the server asks. before is what came with it.
func (p *pair) call(method, params string, meta ...rawjson.Edit) (end string, before []string) {
	if p.client == "legacy" {
		return p.legacyCall(method, string(withMetaEdits(params, meta)))
	}
	again := params
	for range failure.MaxRounds {
		var came []string
		end, came = p.once(method, again, meta)
		before = append(before, came...)
		if text(end, "result", "resultType") != "input_required" {
			return end, before
		}
		var all []rawjson.Edit
		for key, ask := range rawjson.Members(rawjson.GetPath([]byte(end), "result", wire.InputRequests)) {
			all = append(all, rawjson.Edit{Key: key, Value: []byte(answers[text(string(ask), "method")])})
		}
		edits := []rawjson.Edit{{Key: "requestState", Value: []byte(field(end, "result", "requestState"))}}
		if len(all) > 0 {
			edits = append(edits, rawjson.Edit{Key: "inputResponses", Value: rawjson.Set(nil, all...)})
		}
		again = string(rawjson.Set([]byte(params), edits...))
	}
	return end, before
}

func withMetaEdits(params string, meta []rawjson.Edit) []byte {
	if len(meta) == 0 {
		return []byte(params)
	}
	return rawjson.SetIn([]byte(params), "_meta", meta...)
}

func (p *pair) legacyCall(method, params string) (end string, before []string) {
	if c := p.talk(); c != nil {
		return c.ask(method, params)
	}
	c := p.session()
	for r := c.begin(method, params); ; {
		m := r.next()
		switch {
		case field(m, "method") == "":
			return m, before
		case field(m, "id") != "":
			c.answer(m, answers[text(m, "method")])
		default:
			before = append(before, m)
		}
	}
}

// exhibit is a server that has every feature of its era.
func exhibit(t *testing.T, start func(*testing.T, string, string) *script, era string) *script {
	s := start(t, "s", era)
	s.caps = strings.TrimSuffix(allCaps, "}") + `,"tasks":{"list":{}},"extensions":{"x/one":{"v":1.0}}}`
	s.setList("tools/list", `{"tools":[{"name":"a","inputSchema":{"type":"object"},"icons":[{"src":"data:"}],"x":1.0}]}`)
	s.serve = func(q *query) { exhibits(q, s) }
	return s
}

func exhibits(q *query, s *script) {
	meta := orNull(rawjson.Get(q.Params, "_meta"))
	token := orNull(rawjson.GetPath(q.Params, "_meta", "progressToken"))
	name := q.name()
	if name == "" {
		name = text(string(q.Params), "uri")
	}
	switch {
	case q.Method == "logging/setLevel", q.Method == "resources/subscribe", q.Method == "resources/unsubscribe":
		q.result(`{}`)
	case strings.HasPrefix(q.Method, "tasks/"):
		q.result(`{"resultType":"complete","taskId":%s,"status":"completed"}`, orNull(rawjson.Get(q.Params, "taskId")))
	case strings.HasPrefix(name, "ask:"):
		inquire(q, s, strings.TrimPrefix(name, "ask:"))
	case name == "progress":
		q.notify("notifications/progress", `{"progressToken":`+token+`,"progress":1.0}`)
		q.result(`{"content":[]}`)
	case name == "log":
		q.notify("notifications/message", `{"level":"debug","data":"d"}`)
		q.notify("notifications/message", `{"level":"error","data":"e"}`)
		q.result(`{"content":[]}`)
	case name == "later":
		q.result(`{"resultType":"later"}`)
	case name == "task":
		q.result(`{"resultType":"task","taskId":"t1","task":{"taskId":"t1","status":"working"}}`)
	case name == "url":
		if len(s.got("tools/call")) == 1 {
			q.emit(rawjson.AppendError(nil, q.ID, &wire.Error{Code: failure.CodeURLRequired, Message: "m", Data: []byte(
				`{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x.example/","message":"m"}]}`)}))
			return
		}
		q.result(`{"content":[],"done":true}`)
	case name == "fail":
		q.emit(rawjson.AppendError(nil, q.ID, &wire.Error{Code: -32077, Message: "no", Data: []byte(`{"x":1.0}`)}))
	default:
		q.result(`{"content":[{"type":"text","text":"x"}],"structuredContent":{"n":1.0},"future":9007199254740993,"_meta":{"vendor/x":1.0},"params":%s,"meta":%s}`, orNull(q.Params), meta)
	}
}

// inquire asks the questions that a name lists: commas separate questions at once,
// semicolons separate rounds.
func inquire(q *query, s *script, what string) {
	rounds := strings.Split(what, ";")
	params := map[string]string{"form": `{"message":"m","requestedSchema":{"type":"object"}}`, "url": `{"mode":"url","message":"m","url":"https://x.example/","elicitationId":"e"}`,
		"sampling": `{"messages":[],"maxTokens":1.0}`, "roots": ``}
	method := map[string]string{"form": policy.AskElicitation, "url": policy.AskElicitation, "sampling": policy.AskSampling, "roots": policy.AskRoots}
	if s.era == "legacy" {
		heard := 0
		for _, round := range rounds {
			var all sync.WaitGroup
			var mu sync.Mutex
			for kind := range strings.SplitSeq(round, ",") {
				all.Go(func() {
					a := q.ask(method[kind], params[kind])
					mu.Lock()
					defer mu.Unlock()
					if field(a, "result") == answers[method[kind]] {
						heard++
					}
				})
			}
			all.Wait()
		}
		q.result(`{"content":[],"heard":%d}`, heard)
		return
	}
	n, heard := 0, 0
	if state, ok := rawjson.GetString(q.Params, "requestState"); ok {
		fmt.Sscan(state, &n, &heard)
		for key, a := range rawjson.Members(rawjson.Get(q.Params, "inputResponses")) {
			if string(a) == answers[method[key]] {
				heard++
			}
		}
	}
	if n == len(rounds) {
		q.result(`{"resultType":"complete","content":[],"heard":%d}`, heard)
		return
	}
	asks := rawjson.Empty
	for kind := range strings.SplitSeq(rounds[n], ",") {
		if kind == "" { // state without a question
			continue
		}
		ask := rawjson.Set(nil, rawjson.Edit{Key: "method", Value: rawjson.AppendQuote(nil, method[kind])})
		if p := strings.Replace(params[kind], `,"elicitationId":"e"`, "", 1); p != "" {
			ask = rawjson.Set(ask, rawjson.Edit{Key: "params", Value: []byte(p)})
		}
		asks = rawjson.Set(asks, rawjson.Edit{Key: kind, Value: ask})
	}
	q.result(`{"resultType":"input_required","inputRequests":%s,"requestState":"%d %d"}`, asks, n+1, heard)
}

// feature is one row. run returns "" when the feature works, "-" when the pair of eras has
// no such thing, and what is wrong otherwise.
type feature struct {
	what string
	run  func(p *pair) string
}

func wants(got, want string) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("got %s, want %s", got, want)
}

// asks is a feature in which the server asks n questions.
func asks(what string, n int) func(*pair) string {
	return func(p *pair) string {
		if p.server == "legacy" && strings.Contains(what, ";;") {
			return "-"
		}
		for _, c := range []struct{ method, params string }{
			{"tools/call", `{"name":"` + p.name("ask:"+what) + `"}`}, {"prompts/get", `{"name":"` + p.name("ask:"+what) + `"}`}, {"resources/read", `{"uri":"` + p.uri("ask:"+what) + `"}`},
		} {
			end, _ := p.call(c.method, c.params)
			if bad := wants(field(end, "result", "heard"), fmt.Sprint(n)); bad != "" {
				return c.method + ": " + bad + " in " + end
			}
		}
		return ""
	}
}

func (p *pair) plain(params string, meta ...rawjson.Edit) string {
	end, _ := p.call("tools/call", `{"name":"`+p.name("a")+`"`+params+`}`, meta...)
	return end
}

// declared is what the server knows of its client.
func (p *pair) declared() string {
	if p.server == "modern" {
		return string(rawjson.Get(p.s.last("tools/call").Params, "_meta"))
	}
	all := p.s.got("initialize")
	params := string(all[len(all)-1].Params)
	return `{"` + wire.MetaCapabilities + `":` + field(params, "capabilities") + `,"` + wire.MetaClientInfo + `":` + field(params, "clientInfo") + `}`
}

// greeting is what the client knows of its server.
func (p *pair) greeting() string {
	switch {
	case p.client == "modern":
		end, _ := p.once("server/discover", `{}`, nil)
		return end
	case p.door == "http":
		return p.legacy(p.path, "uid:1000", p.caps).hello
	}
	return p.newTalk().hello
}

var matrix = []feature{
	{"tools, with structured output", func(p *pair) string {
		end := p.plain(`,"arguments":{"v":1.0}`)
		return wants(field(end, "result", "structuredContent")+field(end, "result", "params", "arguments"), `{"n":1.0}{"v":1.0}`)
	}},
	{"prompts", func(p *pair) string {
		end, _ := p.call("prompts/get", `{"name":"`+p.name("g")+`"}`)
		return wants(field(end, "result", "params", "name"), `"g"`)
	}},
	{"resources", func(p *pair) string {
		end, _ := p.call("resources/read", `{"uri":"`+p.uri("file:///x")+`"}`)
		return wants(field(end, "result", "params", "uri"), `"file:///x"`)
	}},
	{"completion", func(p *pair) string {
		end, _ := p.call("completion/complete", `{"ref":{"type":"ref/prompt","name":"`+p.name("g")+`"},"argument":{"name":"a","value":"1"}}`)
		return wants(field(end, "result", "params", "ref", "name"), `"g"`)
	}},
	{"lists, with icons and unknown members", func(p *pair) string {
		end, _ := p.call("tools/list", `{}`)
		return wants(field(end, "result", "tools"), `[{"name":"`+p.name("a")+`","inputSchema":{"type":"object"},"icons":[{"src":"data:"}],"x":1.0}]`)
	}},
	{"numbers, unknown members, `_meta` of vendors", func(p *pair) string {
		end := p.plain(``)
		return wants(field(end, "result", "future")+field(end, "result", "_meta", "vendor/x"), `90071992547409931.0`)
	}},
	{"errors with data", func(p *pair) string {
		end, _ := p.call("tools/call", `{"name":"`+p.name("fail")+`"}`)
		return wants(code(end)+field(end, "error", "data"), `-32077{"x":1.0}`)
	}},
	{"trace context in `_meta` (SEP-414)", func(p *pair) string {
		context := []rawjson.Edit{{Key: "traceparent", Value: []byte(`"00-1-2-01"`)}, {Key: "tracestate", Value: []byte(`"v=1"`)}, {Key: "baggage", Value: []byte(`"a=b"`)}}
		end := p.plain(``, context...)
		for _, c := range context {
			if bad := wants(field(end, "result", "meta", c.Key), string(c.Value)); bad != "" {
				return c.Key + ": " + bad
			}
		}
		return ""
	}},
	{"progress", func(p *pair) string {
		_, before := p.call("tools/call", `{"name":"`+p.name("progress")+`"}`, rawjson.Edit{Key: "progressToken", Value: []byte(`"p"`)})
		return wants(join(before), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1.0}}`)
	}},
	{"log messages at the level that the client names", func(p *pair) string {
		var meta []rawjson.Edit
		if p.client == "legacy" {
			p.call("tools/list", `{}`)
			p.call("logging/setLevel", `{"level":"debug"}`)
		} else {
			meta = append(meta, rawjson.Edit{Key: wire.MetaLogLevel, Value: []byte(`"debug"`)})
		}
		_, before := p.call("tools/call", `{"name":"`+p.name("log")+`"}`, meta...)
		if p.server == "legacy" && len(p.s.got("logging/setLevel")) == 0 {
			return "the server was told no level"
		}
		return wants(fmt.Sprint(len(before)), "2")
	}},
	{"changes of lists and resources", func(p *pair) string {
		r := p.hears(p.uri("file:///a"))
		p.s.change(protocol.ToolsChanged, `{}`)
		r.nextOf(protocol.ToolsChanged)
		p.s.change(protocol.ResourceUpdated, `{"uri":"file:///a"}`)
		return wants(text(r.nextOf(protocol.ResourceUpdated), "params", "uri"), p.uri("file:///a"))
	}},
	{"elicitation by form, in tools, prompts and resources", asks("form", 1)},
	{"elicitation by URL", asks("url", 1)},
	{"sampling", asks("sampling", 1)},
	{"roots", asks("roots", 1)},
	{"three questions at once", asks("form,sampling,roots", 3)},
	{"two rounds", asks("form;sampling", 2)},
	{"state without a question", asks("form;;sampling", 2)},
	{"a URL that a call needs first (-32042)", func(p *pair) string {
		if p.server == "modern" {
			return "-"
		}
		end, _ := p.call("tools/call", `{"name":"`+p.name("url")+`"}`)
		if p.client == "legacy" {
			return wants(code(end)+text(string(rawjson.GetPath([]byte(end), "error", "data", "elicitations")[1:]), "url"), "-32042https://x.example/")
		}
		return wants(field(end, "result", "done"), "true")
	}},
	{"capabilities of the client, seen by the server", func(p *pair) string {
		p.plain(``)
		caps := p.declared()
		return wants(field(caps, wire.MetaCapabilities, "elicitation")+field(caps, wire.MetaCapabilities, "sampling"), `{"form":{},"url":{}}{}`)
	}},
	{"clientInfo, seen by the server", func(p *pair) string {
		p.plain(``)
		return wants(text(p.declared(), wire.MetaClientInfo, "name"), "tester")
	}},
	{"extensions of the client, seen by the server", func(p *pair) string {
		p.caps = `{"extensions":{"x/mine":{"v":1.0}}}`
		p.plain(``)
		return wants(field(p.declared(), wire.MetaCapabilities, "extensions"), `{"x/mine":{"v":1.0}}`)
	}},
	{"extensions of the server, seen by the client", func(p *pair) string {
		p.plain(``)
		return wants(field(p.greeting(), "result", "capabilities", "extensions", "x/one"), `{"v":1.0}`)
	}},
	{"requests that Doorward does not know", func(p *pair) string {
		end, _ := p.call("future/read", `{"name":"`+p.name("o")+`","x":1.0}`)
		return wants(field(end, "result", "params", "name")+field(end, "result", "params", "x"), `"o"1.0`)
	}},
	{"notifications that Doorward does not know", func(p *pair) string {
		if bad := p.informs(future, `{"name":"`+p.name("o")+`"}`); bad != "" {
			return bad
		}
		return wants(text(string(p.s.last(future).Params), "name"), "o")
	}},
	{"results of a kind that Doorward does not know", func(p *pair) string {
		if p.server == "legacy" {
			return "-"
		}
		end, _ := p.call("tools/call", `{"name":"`+p.name("later")+`"}`)
		if text(end, "result", "resultType") == "later" {
			return ""
		}
		return code(end) + " " + text(end, "error", "message")
	}},
	{"tasks of 2025-11-25", func(p *pair) string {
		if p.client == "modern" || p.server == "modern" {
			return p.noTask()
		}
		end, _ := p.call("tools/call", `{"name":"`+p.name("task")+`","task":{}}`)
		id := text(end, "result", "task", "taskId")
		end, _ = p.call("tasks/get", `{"taskId":"`+id+`"}`)
		return wants(text(end, "result", "taskId"), id)
	}},
	{"tasks of SEP-2663", func(p *pair) string {
		if p.client == "legacy" || p.server == "legacy" {
			return p.noTask()
		}
		end, _ := p.call("tools/call", `{"name":"`+p.name("task")+`"}`)
		id := text(end, "result", "taskId")
		end, _ = p.call("tasks/get", `{"taskId":"`+id+`"}`)
		return wants(text(end, "result", "taskId"), id)
	}},
}

// noTask returns the answer to requests about a task of the other era. Each gets the same
// answer, and none reaches the server.
func (p *pair) noTask() string {
	if p.client == p.server {
		return "-"
	}
	var all []string
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/update"} {
		end, _ := p.call(method, `{"taskId":"`+p.name("t1")+`"}`)
		all = append(all, code(end)+" "+text(end, "error", "message"))
		if len(p.s.got(method)) != 0 {
			return method + " reached the server"
		}
	}
	return strings.Join(slices.Compact(all), "; ")
}
