package relay

import (
	"fmt"
	"testing"
)

// A tool says to a client of 2025-11-25 that its calls may become tasks only where the client can
// get the task. The aggregate declares tasks whatever its servers do, and a client that makes a
// task of a call cannot read another answer. On the route of one server its greeting says so too.
func TestAToolOffersTasksWhereTheyCanBeGot(t *testing.T) {
	t.Parallel()
	const tasks, execution = `{"requests":{"tools":{"call":{}}}}`, `{"taskSupport":"optional","x":1.0}`
	for _, of := range []string{"legacy", "modern"} {
		for _, caps := range []string{`{"tools":{"listChanged":true}}`, `{"tools":{},"tasks":{"list":{}}}`, `{"tools":{"listChanged":true},"tasks":` + tasks + `}`} {
			for _, sharing := range []string{"auto", "session", "principal", "shared"} {
				for kind, start := range transports {
					t.Run(fmt.Sprint(of, " ", caps, " ", sharing, " ", kind), func(t *testing.T) {
						t.Parallel()
						s := start(t, "s", of)
						s.caps = caps
						s.lists["tools/list"] = `{"tools":[{"name":"plain","inputSchema":{"type":"object"}},{"name":"echo","execution":` + execution + `,"inputSchema":{"type":"object"}}]}`
						h := build(t, []Server{s.server(instances(sharing))})
						makes := of == "legacy" && sharing != "shared" && field(caps, "tasks", "requests") != ""
						want := map[bool]string{true: execution, false: `{"x":1.0}`}[makes]
						c := h.legacy("/mcp", "uid:1000", `{}`)
						for range 2 { // the second list may be a kept one
							got := field(c.call("tools/list", `{}`), "result", "tools")
							equal(t, "tools", got, `[{"name":"s__plain","inputSchema":{"type":"object"}},{"name":"s__echo","execution":`+want+`,"inputSchema":{"type":"object"}}]`)
						}
						if of == "legacy" {
							own := field(h.legacy("/mcp/s", "uid:1000", `{}`).hello, "result", "capabilities", "tasks")
							equal(t, "declared on its own route", own, map[bool]string{true: field(caps, "tasks")}[sharing != "shared"])
						}
					})
				}
			}
		}
	}
}
