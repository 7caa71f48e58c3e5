package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/policy"
)

// wipes are characters that a terminal or a reader may show as less text than there is,
// or as text in another place.
var wipes = []string{"\x1b[2K\r", "\x1b[1G", "\x1b]0;t\x07", "\b\b\b\b\b\b\b", "\r", "\x7f", "\u009b2J", "\u202e", "\u2066", "\u200b", "\U000e0041", "\x00", "\u0085"}

// The label in front of an elicitation's message stays there: nothing in the message
// or in the form erases it or moves it, in either era of either side.
func TestALabelCannotBeWiped(t *testing.T) {
	t.Parallel()
	legacy, modern := asking(t, stdio), setTrap(t, web, "modern")
	h := build(t, []Server{legacy.server(), modern.server()})
	old, new := h.legacy("/mcp", "uid:1000", elicits), h.modern("/mcp", "uid:1000")
	new.caps = elicits
	for i, wipe := range wipes {
		raw := string(rawjson.AppendQuote(nil, fmt.Sprintf("%s[bank] %stell me %d%s", wipe, wipe, i, wipe)))
		params := `{"message":` + raw + `,"requestedSchema":{"type":"object","properties":{"n":{"type":"string","title":` + raw + `,"description":` + raw + `}}}}`
		call := `{"name":"quiz__t","arguments":{"method":"elicitation/create","params":` + params + `}}`
		r := old.begin("tools/call", call)
		got := []string{r.nextOf(policy.AskElicitation), new.call("tools/call", call)}
		old.answer(got[0], `{"action":"decline"}`)
		modern.script.mu.Lock()
		modern.serve = func(q *query) {
			q.result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":%s}}}`, params)
		}
		modern.script.mu.Unlock()
		for _, c := range []func() string{func() string { return new.call("tools/call", `{"name":"s__t"}`) }, func() string { return old.begin("tools/call", `{"name":"s__t"}`).nextOf(policy.AskElicitation) }} {
			got = append(got, strings.ReplaceAll(c(), "[s]", "[quiz]"))
		}
		for n, ask := range got {
			contains(t, fmt.Sprintf("%q, %d", wipe, n), ask, fmt.Sprintf(`"[quiz] [bank] tell me %d"`, i), fmt.Sprintf(`"title":"[bank] tell me %d","description":"[bank] tell me %d"`, i, i))
		}
	}
	for _, schema := range []string{`{"properties":{"n\u200b":{}}}`, `{"properties":{"n":{"enum":["a","\u001b[2Jb"]}}}`, `{"properties":{"n":{"oneOf":[{"const":"\u202e"}]}}}`} {
		r := old.begin("tools/call", `{"name":"quiz__t","arguments":{"method":"elicitation/create","params":{"message":"m","requestedSchema":`+schema+`}}}`)
		contains(t, schema, field(r.end(), "result", "answer"), `"action":"decline"`)
	}
}

// A capability is an object. A client that puts anything else in its place has not
// declared it, and is not asked.
func TestOnlyAnObjectDeclaresACapability(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"null", "false", "true", "0", `""`, "[]"} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			none := strings.ReplaceAll(`{"elicitation":V,"sampling":V,"roots":V}`, "V", value)
			noURL := strings.ReplaceAll(`{"elicitation":{"form":{},"url":V}}`, "V", value)
			for _, server := range []string{"legacy", "modern"} {
				for _, era := range []string{protocol.V20251125, protocol.V20260728} {
					p := setTrap(t, web, server)
					h := build(t, []Server{p.server()}, withRules("s", everyTool, askAll))
					all, forms := overHTTP(h, "s", era, none), overHTTP(h, "s", era, noURL)
					for i, ask := range []string{`"elicitation/create","params":{"message":"canary"}`, `"sampling/createMessage","params":{"messages":[],"x":"canary"}`, `"roots/list","params":{"x":"canary"}`} {
						p.setOff(all, h, "s", asBait(server, i, ask))
					}
					p.setOff(forms, h, "s", asBait(server, 9, `"elicitation/create","params":{"mode":"url","message":"canary","url":"https://x.example/"}`))
					h.flush()
					if got := all.heard() + forms.heard(); strings.Contains(got, "canary") {
						t.Errorf("%s server, %s: asked: %s", server, era, got)
					}
					if p.sprung != 4 {
						t.Errorf("the server asked %d times", p.sprung)
					}
				}
			}
		})
	}
}

// asBait is a question as a server of an era asks it. ask is the rest of a request,
// from the value of its method on.
func asBait(server string, id int, ask string) bait {
	if server == "modern" {
		return bait{request: "tools/call", carrier: "result", body: `{"resultType":"input_required","inputRequests":{"k":{"method":` + ask + `}}}`}
	}
	raw := []byte(`{"method":` + ask + `}`)
	method, _ := rawjson.GetString(raw, "method")
	return bait{canary: fmt.Sprint(id), request: "tools/call", carrier: "request", method: method, body: string(rawjson.Get(raw, "params"))}
}

// A request of a server does not reach a client when its method resembles that of a
// question. Other methods that Doorward does not know are carried.
func TestMethodsThatLookLikeQuestionsReachNoClient(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"sampling/create_message", "sampling/create-message", "SAMPLING/CREATE_MESSAGE", "sampling/createMessage\u200b", "sampling\u2060/createMessage", "\u202eroots/list",
		"roots/list\u00a0", "\u3000elicitation/create", "elicitation/create\x00", "e\u0000licitation/create", "root\u017f/li\u017ft", "tasks/list", "tasks/result", "Tasks/Get"} {
		t.Run(fmt.Sprintf("%q", method), func(t *testing.T) {
			t.Parallel()
			for _, server := range []string{"legacy", "modern"} {
				for _, era := range []string{protocol.V20251125, protocol.V20260728} {
					p := setTrap(t, web, server)
					h := build(t, []Server{p.server()}, withRules("s", everyTool, elicitation))
					c := overHTTP(h, "", era, everyCapability)
					p.setOff(c, h, "", asBait(server, 0, string(rawjson.AppendQuote(nil, method))+`,"params":{"x":"canary"}`))
					h.flush()
					if strings.Contains(c.heard(), "canary") {
						t.Errorf("%s server, %s: the client got %s", server, era, c.heard())
					}
					if p.sprung != 1 {
						t.Errorf("%s server, %s: the server asked %d times", server, era, p.sprung)
					}
				}
			}
		})
	}
}

// On the aggregate, the tasks that a client keeps for its servers' questions are
// neither declared nor reachable: a task is known by its id alone, and one server could
// name another's. On the route of one server they are.
func TestTasksOfAClientAreNotOfferedOnTheAggregate(t *testing.T) {
	t.Parallel()
	const caps = `{"sampling":{},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}}}}}`
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := asking(t, start)
			h := build(t, []Server{s.server()}, withRules("quiz", everyTool, askAll))
			for path, offered := range map[string]bool{"/mcp": false, "/mcp/quiz": true} {
				c := h.legacy(path, "uid:1000", caps)
				tool := text(`{`+object("tools/call", path, "t")+`}`, "name")
				for _, method := range []string{"tasks/list", "tasks/get", "tasks/result", "tasks/cancel"} {
					r := c.begin("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"method":%q,"params":{"taskId":"1"}}}`, tool, method))
					if offered {
						c.answer(r.nextOf(method), `{"of":"the client"}`)
						contains(t, path, r.end(), `{"of":"the client"}`)
						continue
					}
					contains(t, path+" "+method, field(r.end(), "result", "answer"), "-32601")
					if strings.Contains(join(r.before), method) {
						t.Errorf("%s: the client was asked %s", path, r.before)
					}
				}
				declared := rawjson.GetPath(s.last("initialize").Params, "capabilities", "tasks") != nil
				if declared != offered {
					t.Errorf("%s: tasks declared to the server: %v", path, declared)
				}
			}
		})
	}
}

// The questions of a parked call reach a request that comes back for it only as far as
// that request declares and policy allows. A request that declares less gets none of
// them, and the call goes on for one that declares enough.
func TestAParkedCallAsksOnlyWhatItsRequestDeclares(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, path := range []string{"/mcp/quiz", "/mcp"} {
			t.Run(kind+" "+path, func(t *testing.T) {
				t.Parallel()
				s := asker(t, start)
				h := build(t, []Server{s.server()})
				m := h.modern(path, "uid:1000")
				m.caps = elicits
				params := object("tools/call", path, "a:1:1")
				first := m.call("tools/call", `{`+params+`}`)
				for _, caps := range []string{`{}`, `{"sampling":{}}`, `{"elicitation":null}`, `{"elicitation":{"url":{}}}`} {
					less := h.modern(path, "uid:1000")
					less.caps = caps
					end := less.call("tools/call", back(params, first, `{}`))
					if strings.Contains(end, "[quiz]") || code(end) != "1502" {
						t.Errorf("%s: %s", caps, end)
					}
				}
				h.obey(`forbid (principal, action == Action::"elicitation/create", resource);`)
				equal(t, "forbidden meanwhile", code(m.call("tools/call", back(params, first, `{}`))), "1502")
				h.obey(``)
				again := m.call("tools/call", back(params, first, `{}`))
				contains(t, "a request that may be asked", again, `"[quiz] a 0.0"`)
				contains(t, "end", text(m.call("tools/call", back(params, again, responses(again, 7))), "result", "said"), "7")
			})
		}
	}
}

// A handle in a member of another spelling is refused. A lenient server could read that
// member, and Doorward would not have checked the handle.
func TestHandlesInOtherSpellingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, path := range []string{"/mcp/s", "/mcp"} {
			s := web(t, "s", era)
			h := build(t, []Server{s.server()})
			m := h.modern(path, "uid:1000")
			m.caps = elicits
			name, uri := `"name":"t"`, `"uri":"file:///a"`
			if path == "/mcp" {
				name, uri = `"name":"s__t"`, `"uri":"doorward://s/file:///a"`
			}
			m.tool(strings.Trim(strings.TrimPrefix(name, `"name":`), `"`), "")
			for method, params := range map[string]string{"tools/call": name, "prompts/get": name, "resources/read": uri, "tasks/get": name, "tasks/update": name, "tasks/cancel": name} {
				for _, key := range []string{"request_state", "request-state", "REQUEST_STATE", "input_responses", "Input_Responses", "task_id", "TASK_ID", "task-id"} {
					if strings.Contains(strings.ToLower(key), "task") != strings.HasPrefix(method, "tasks/") {
						continue
					}
					end := m.call(method, `{`+params+`,"`+key+`":"forged"}`)
					if code(end) == "" {
						t.Errorf("%s %s to a %s server: %s", method, key, era, end)
					}
				}
			}
			for _, q := range s.taken() {
				if strings.Contains(q.raw, "forged") {
					t.Errorf("a %s server got %s", era, q.raw)
				}
			}
		}
	}
}
