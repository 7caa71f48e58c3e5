package relay

import (
	"fmt"
	"testing"
)

// The aggregate declares tasks in the form of the client's version, whether servers have been
// connected or not, and whether they have tasks or not. Older versions have no tasks.
func TestTheAggregateDeclaresTasksBeforeItsServersStart(t *testing.T) {
	t.Parallel()
	const tasks = `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		for of, with := range map[string]string{"legacy": `{"tools":{},"tasks":{"list":{}}}`, "modern": `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`} {
			for _, caps := range []string{`{"tools":{}}`, with} {
				t.Run(fmt.Sprint(version, " ", of, " ", caps), func(t *testing.T) {
					t.Parallel()
					s := stdio(t, "a", of)
					s.caps = caps
					h := build(t, []Server{s.server()})
					declared := func() string {
						if version == "2026-07-28" {
							return field(h.modern("/mcp", "uid:1000").call("server/discover", `{}`), "result", "capabilities")
						}
						c := &session{house: h, who: "uid:1000", path: "/mcp", version: version}
						return field(c.hello0(`{}`).end(), "result", "capabilities")
					}
					before := declared()
					h.modern("/mcp", "uid:1000").call("tools/list", `{}`)
					equal(t, "after the server was connected", declared(), before)
					want := map[string]string{"2025-11-25": tasks}[version]
					equal(t, "tasks", field(before, "tasks"), want)
					want = map[string]string{"2026-07-28": `{"io.modelcontextprotocol/tasks":{}}`}[version]
					equal(t, "extensions", field(before, "extensions"), want)
				})
			}
		}
	}
}

// A client to which tasks are declared gets a list of them, even if no server has any.
func TestTheAggregateListsNoTasks(t *testing.T) {
	t.Parallel()
	for _, servers := range [][]string{{}, {"a"}, {"a", "b"}} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			var all []Server
			for _, name := range servers {
				s := stdio(t, name, "legacy")
				s.serve = func(q *query) { q.fail(-32601, "Method not found") }
				all = append(all, s.server())
			}
			h := build(t, all)
			equal(t, "tasks", field(h.legacy("/mcp", "uid:1000", `{}`).call("tasks/list", `{}`), "result"), `{"tasks":[]}`)
			equal(t, "of the later era", code(h.modern("/mcp", "uid:1000").call("tasks/list", `{}`)), "-32601")
		})
	}
}
