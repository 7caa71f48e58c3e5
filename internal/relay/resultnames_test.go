package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// library is a server whose messages name its resources in every place that the
// protocol has for it.
func library(t *testing.T, start func(*testing.T, string, string) *script, era string) *script {
	s := start(t, "shelf", era)
	s.setList("tools/list", `{"tools":[{"name":"app","inputSchema":{},"_meta":{"ui":{"resourceUri":"ui://a","x":1.0},"ui/resourceUri":"ui://a"}}]}`)
	s.setList("skills/list", `{"skills":[{"uri":"skill://s/SKILL.md","frontmatter":{"name":"s","uri":"kept"},"resources":[{"uri":"skill://s/SKILL.md","size":1.0}]},{"uri":"skill://d/SKILL.md","resources":"dynamic"}]}`)
	s.serve = func(q *query) {
		uri := text(string(q.Params), "uri")
		switch q.Method {
		case "tools/call":
			q.result(`{"content":[{"type":"text","text":"file:///t"},{"type":"resource_link","uri":"file:///l","x":1.0},{"type":"resource","resource":{"uri":"file:///r","text":"x"}}],"structuredContent":{"uri":"file:///s"},"_meta":{"ui":{"resourceUri":"ui://a"}},"heard":%s}`, orNull(rawjson.Get(q.Params, "arguments")))
		case "prompts/get":
			q.result(`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///p","text":"x"}}}]}`)
		case "resources/read":
			q.result(`{"contents":[{"uri":%q,"text":"x"}]}`, uri)
		case "resources/directory/read":
			q.result(`{"resources":[{"uri":"skill://s/a","name":"a"}]}`)
		case "skills/get":
			q.result(`{"skill":{"uri":%q,"resources":[{"uri":%q}]}}`, uri, uri)
		default:
			q.result(`{}`)
		}
	}
	return s
}

// Each URI that a client of the aggregate gets can be read there as it stands, and is
// the server's own again when it gets there. Everything else keeps its bytes.
func TestEveryURIOfTheAggregateCanBeRead(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, server := range []string{"legacy", "modern"} {
			t.Run(kind+" "+server, func(t *testing.T) {
				t.Parallel()
				s := library(t, start, server)
				h := build(t, []Server{s.server()})
				for era, call := range clients(h, "/mcp", "uid:1000") {
					for _, c := range []struct{ method, params string }{
						{"tools/list", `{}`}, {"skills/list", `{}`}, {"tools/call", `{"name":"shelf__app"}`}, {"prompts/get", `{"name":"shelf__p"}`},
						{"resources/read", `{"uri":"doorward://shelf/file:///x"}`}, {"resources/directory/read", `{"uri":"doorward://shelf/skill://s"}`},
						{"skills/get", `{"uri":"doorward://shelf/skill://s/SKILL.md"}`},
					} {
						got := call(c.method, c.params)
						for _, uri := range named([]byte(got)) {
							equal(t, era+" "+c.method+" names "+uri, field(call("resources/read", fmt.Sprintf(`{"uri":%q}`, uri)), "error"), "")
							equal(t, "read there as", text(s.last("resources/read").raw, "params", "uri"), strings.TrimPrefix(uri, "doorward://shelf/"))
						}
						if n := len(named([]byte(got))); n == 0 {
							t.Errorf("%s %s names nothing: %s", era, c.method, got)
						}
					}
					got := call("tools/call", `{"name":"shelf__app","arguments":{"a":["doorward://shelf/file:///l",1.0],"b":"doorward://other/x","c":"see doorward://shelf/x"}}`)
					equal(t, era+" heard", field(got, "result", "heard"), `{"a":["file:///l",1.0],"b":"doorward://other/x","c":"see doorward://shelf/x"}`)
					equal(t, era+" structured", field(got, "result", "structuredContent"), `{"uri":"file:///s"}`)
					contains(t, era+" texts", got, `"text":"file:///t"`, `"x":1.0`)
				}
			})
		}
	}
}

// named are the strings under uri, resourceUri and ui/resourceUri in a message, apart
// from data that the protocol does not define.
func named(raw []byte) []string {
	var out []string
	for key, value := range rawjson.Members(raw) {
		switch key {
		case "structuredContent", "frontmatter", "heard":
			continue
		case "uri", "resourceUri", "ui/resourceUri":
			uri, _ := wire.Text(value)
			out = append(out, uri)
		}
		out = append(out, named(value)...)
	}
	for e := range rawjson.Elements(raw) {
		out = append(out, named(e)...)
	}
	return out
}

// Tasks of one era work on the aggregate as on the route of their server.
func TestTasksOnTheAggregate(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for kind, start := range transports {
			t.Run(kind+" "+era, func(t *testing.T) {
				t.Parallel()
				s, other := start(t, "jobs", era), web(t, "other", era)
				s.setList("tasks/list", `{"tasks":[{"taskId":"t7","x":1.0}]}`)
				s.serve = func(q *query) {
					switch {
					case q.Method == "tools/call" && era == "modern":
						q.result(`{"resultType":"task","taskId":"t7","status":"working"}`)
					case q.Method == "tools/call":
						q.result(`{"task":{"taskId":"t7","status":"working"}}`)
					default:
						q.result(`{"taskId":%s,"status":"completed","result":{"content":[{"type":"resource_link","uri":"a"}]},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t7"}}}`, orNull(rawjson.Get(q.Params, "taskId")))
					}
				}
				h := build(t, []Server{s.server(), other.server()})
				call := clients(h, "/mcp", "uid:1000")[era]
				made := call("tools/call", `{"name":"jobs__x","task":{}}`)
				id := text(made, "result", "taskId") + text(made, "result", "task", "taskId")
				for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/get"} {
					got := call(method, fmt.Sprintf(`{"taskId":%q}`, id))
					equal(t, method, text(got, "result", "taskId"), id)
					equal(t, method+" there", text(s.last(method).raw, "params", "taskId"), "t7")
					contains(t, method, got, `"uri":"doorward://jobs/a"`)
				}
				stranger := clients(h, "/mcp", "token:bob")[era]
				if got := stranger("tasks/get", fmt.Sprintf(`{"taskId":%q}`, id)); era == "modern" && code(got) != "-32602" {
					t.Errorf("the task of another principal: %s", got)
				}
				if era == "legacy" {
					contains(t, "the list", call("tasks/list", `{}`), `{"taskId":"jobs__t7","x":1.0}`)
				}
				if n := len(other.got("tasks/get")) + len(other.got("tools/call")); n != 0 {
					t.Errorf("the other server got %d of it", n)
				}
			})
		}
	}
}

// A request that Doorward does not know goes to the server whose object it names, and
// a list of its kind is merged.
func TestUnknownRequestsOfTheAggregate(t *testing.T) {
	t.Parallel()
	a, b := web(t, "a", "legacy"), web(t, "b", "modern")
	for _, s := range []*script{a, b} {
		s.setList("future/things/list", fmt.Sprintf(`{"things":[{"name":"n%s","x":1.0},{"uri":"u:%s"},{"id":"i"}]}`, s.name, s.name))
	}
	h := build(t, []Server{a.server(), b.server(func(_ *Server, _ *upstream.Definition) {})})
	for era, call := range clients(h, "/mcp", "uid:1000") {
		list := call("future/things/list", `{}`)
		contains(t, era, list, `{"name":"a__na","x":1.0}`, `{"uri":"doorward://a/u:a"}`, `{"id":"i"}`, `{"name":"b__nb","x":1.0}`)
		call("future/thing", `{"name":"b__nb","y":1.0}`)
		contains(t, era, b.last("future/thing").raw, `{"name":"nb","y":1.0`)
		h.decided("future/thing", "b")
	}
	if n := len(a.got("future/thing")); n != 0 {
		t.Errorf("the other server got %d of it", n)
	}
}

// The aggregate declares the extensions of its servers once they have said so, and the tasks
// that a client of the era can use.
func TestExtensionsOfTheAggregate(t *testing.T) {
	t.Parallel()
	a, b := stdio(t, "a", "legacy"), web(t, "b", "modern")
	a.caps = `{"tasks":{"list":{}},"extensions":{"x/one":{"v":1.0},"x/two":{"of":"a"}}}`
	b.caps = `{"extensions":{"x/two":{"of":"b"},"io.modelcontextprotocol/tasks":{}}}`
	h := build(t, []Server{a.server(), b.server()})
	m := h.modern("/mcp", "uid:1000")
	equal(t, "before", field(m.call("server/discover", `{}`), "result", "capabilities", "extensions"), `{"io.modelcontextprotocol/tasks":{}}`)
	m.call("tools/list", `{}`)
	caps := m.call("server/discover", `{}`)
	equal(t, "modern", field(caps, "result", "capabilities", "extensions"), `{"io.modelcontextprotocol/tasks":{},"x/one":{"v":1.0},"x/two":{"of":"a"}}`)
	equal(t, "modern tasks", field(caps, "result", "capabilities", "tasks"), "")
	caps = h.legacy("/mcp", "uid:1000", `{}`).hello
	equal(t, "legacy", field(caps, "result", "capabilities", "extensions"), `{"x/one":{"v":1.0},"x/two":{"of":"a"}}`)
	equal(t, "legacy tasks", field(caps, "result", "capabilities", "tasks"), `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
	h.obey(`forbid (principal, action, resource == Server::"a");`)
	equal(t, "of a server that is not allowed", field(m.call("server/discover", `{}`), "result", "capabilities", "extensions"), `{"io.modelcontextprotocol/tasks":{},"x/two":{"of":"b"}}`)
}
