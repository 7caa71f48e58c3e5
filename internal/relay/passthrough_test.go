package relay

import (
	"testing"
)

// odd is JSON that changes if a program decodes and encodes it: key order,
// integers beyond 2^53, 1.0, escapes, white space, unknown members.
const odd = `{"zeta": 1.0,"alpha":9007199254740993 , "e":1E2,"u":"\u00e9é\/","n":null,"deep":[{"b":0,"a":-0.0}]}`

var transports = map[string]func(*testing.T, string, string) *script{"stdio": stdio, "http": web}

func TestLegacyPassesTransparently(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			s.serve = func(q *query) {
				switch q.name() {
				case "fail":
					q.emit([]byte(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"error":{"message":"no ` + "\\u00e9" + `","code":7,"data":` + odd + `,"extra":1.0}}`))
				case "talk":
					q.notify("notifications/future", odd)
					q.result(odd)
				default:
					q.result(odd)
				}
			}
			h := build(t, []Server{s.server(instances("session"))})
			c := h.legacy("/mcp/s", "uid:1000", elicits)
			init := s.last("initialize")
			equal(t, "initialize params", string(init.Params), `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"tester","version":"9"},"future":1.0}`)
			contains(t, "initialize result", c.hello, `"instructions":"be kind"`, `"capabilities":`+allCaps, `"serverInfo":{"name":"s","version":"1"}`)

			params := `{"name":"t","arguments":` + odd + `,"_meta":{"traceparent":"00-1-2-01","x/y":[1.0]},"future":` + odd + `}`
			r := c.begin("tools/call", params)
			equal(t, "result", r.end(), `{"jsonrpc":"2.0","id":1,"result":`+odd+`}`)
			equal(t, "params", string(s.last("tools/call").Params), params)

			equal(t, "error", c.call("tools/call", `{"name":"fail"}`), `{"jsonrpc":"2.0","id":2,"error":{"message":"no \u00e9","code":7,"data":`+odd+`,"extra":1.0}}`)

			r = c.begin("tools/call", `{"name":"talk"}`)
			r.end()
			equal(t, "notification", join(r.before), `{"jsonrpc":"2.0","method":"notifications/future","params":`+odd+`}`)

			equal(t, "unknown method", c.call("future/method", odd), `{"jsonrpc":"2.0","id":4,"result":`+odd+`}`)
			equal(t, "its params", string(s.last("future/method").Params), odd)
			c.notify("notifications/future", odd)
			equal(t, "unknown notification", string(s.last("notifications/future").Params), odd)
			if c.call("future/bare", ""); s.last("future/bare").Params != nil {
				t.Error("params were invented")
			}
			equal(t, "decision", h.decided("future/method", "s").Decision, "allow")
			equal(t, "notification's decision", h.decided("notifications/future", "s").Decision, "allow")
		})
	}
}

func TestModernPassesTransparently(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "modern")
			s.serve = func(q *query) {
				q.notify("notifications/future", odd)
				q.result(`{"resultType":"complete","x":` + odd + `}`)
			}
			h := build(t, []Server{s.server()})
			c := h.modern("/mcp/s", "uid:1000")
			c.caps = `{"elicitation":{},"future":{"a":1.0}}`
			r := c.begin("tools/call", `{"name":"t","arguments":`+odd+`,"_meta":{"traceparent":"00-1-2-01"},"future":`+odd+`}`)
			equal(t, "result", r.end(), `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","x":`+odd+`}}`)
			equal(t, "notification", join(r.before), `{"jsonrpc":"2.0","method":"notifications/future","params":`+odd+`}`)
			q := s.last("tools/call")
			equal(t, "params", string(q.Params), `{"name":"t","arguments":`+odd+`,"_meta":{"traceparent":"00-1-2-01","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"future":{"a":1.0}}},"future":`+odd+`}`)
			if kind == "http" {
				equal(t, "headers", q.header["Mcp-Method"][0]+q.header["Mcp-Name"][0]+q.header["Mcp-Protocol-Version"][0], "tools/callt2026-07-28")
			}
			c.call("future/method", odd)
			contains(t, "unknown method", string(s.last("future/method").Params), odd[1:len(odd)-1])
			r = c.begin("future/none", `{}`)
			r.end()
			contains(t, "discover", c.call("server/discover", `{}`), `"instructions":"be kind"`, `"ttlMs":5`, `"cacheScope":"private"`)
		})
	}
}
