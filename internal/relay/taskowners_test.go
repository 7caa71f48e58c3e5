package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/principal"
)

// withTasks is a legacy server that makes a task of each call, and answers about every task in
// every session: it sees one caller.
func withTasks(t *testing.T, start func(*testing.T, string, string) *script) *script {
	s := start(t, "s", "legacy")
	s.serve = func(q *query) {
		switch q.Method {
		case "tools/call":
			q.result(`{"task":{"taskId":"t\u002d%d","status":"working"}}`, len(s.got("tools/call")))
		case "tasks/list":
			q.result(`{"tasks":[{"taskId":"t-1"},{"taskId":"t-2","x":1.0},{"taskId":7}],"y":1.0}`)
		default:
			q.result(`{"taskId":%s,"status":"completed"}`, orNull(rawjson.Get(q.Params, "taskId")))
		}
	}
	return s
}

// A task of 2025-11-25 at a server over the network belongs to the principal whose call made it,
// in each of its sessions. To another principal it is a task that does not exist.
func TestLegacyTasksBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	for kind, start := range map[string]func(*testing.T, string, string) *script{"http": web, "sse": events} {
		for path, prefix := range map[string]string{"/mcp/s": "", "/mcp": "s__"} {
			t.Run(kind+" "+path, func(t *testing.T) {
				t.Parallel()
				s := withTasks(t, start)
				h := build(t, []Server{s.server()})
				alice, bob := h.legacy(path, "token:alice", `{}`), h.legacy(path, "token:bob", `{}`)
				equal(t, "alice's", text(alice.tool(prefix+"echo", ""), "result", "task", "taskId"), prefix+"t-1")
				equal(t, "bob's", text(bob.tool(prefix+"echo", ""), "result", "task", "taskId"), prefix+"t-2")
				again := h.legacy(path, "token:alice", `{}`)
				for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/future"} {
					id := func(id string) string { return `{"taskId":"` + prefix + id + `"}` }
					foreign, unknown := bob.call(method, id("t-1")), bob.call(method, id("t-9"))
					equal(t, method+" of alice by bob", field(foreign, "error"), `{"code":-32602,"message":"Unknown task"}`)
					equal(t, method+" of a task that does not exist", field(unknown, "error"), field(foreign, "error"))
					equal(t, method+" that arrived", fmt.Sprint(len(s.got(method))), "0")
					equal(t, method+" by alice", field(alice.call(method, id("t-1")), "error")+field(again.call(method, id("t-1")), "error"), "")
					equal(t, method+" that arrived", fmt.Sprint(len(s.got(method))), "2")
				}
				for who, list := range map[*session]string{alice: `{"taskId":"` + prefix + `t-1"}`, bob: `{"taskId":"` + prefix + `t-2","x":1.0}`} {
					equal(t, "list of "+who.who, strings.ReplaceAll(field(who.call("tasks/list", `{}`), "result", "tasks"), " ", ""), "["+list+"]")
				}
				both := bob.call("tasks/get", `{"taskId":"`+prefix+`t-2","task_id":"`+prefix+`t-1"}`)
				if field(both, "error") == "" {
					t.Errorf("a second member that some servers take for the id: %s", both)
				}
			})
		}
	}
}

// A session hears of the changes of its own principal's tasks, whichever session the server tells.
func TestLegacyTaskChangesReachTheirPrincipal(t *testing.T) {
	t.Parallel()
	s := withTasks(t, web)
	h := build(t, []Server{s.server()})
	alice, bob := h.legacy("/mcp/s", "token:alice", `{}`), h.legacy("/mcp/s", "token:bob", `{}`)
	alice.tool("echo", "")
	bob.tool("echo", "")
	heard := map[string]*reply{"t-1": alice.listen(), "t-2": bob.listen()}
	for _, id := range []string{"t-2", "t-1", "t-2"} {
		s.change(protocol.TaskChanged, `{"taskId":"`+id+`","status":"completed"}`)
	}
	equal(t, "alice hears", text(heard["t-1"].next(), "params", "taskId"), "t-1")
	for range 2 {
		equal(t, "bob hears", text(heard["t-2"].next(), "params", "taskId"), "t-2")
	}
}

// The tasks of each principal are bounded by themselves: those that bob makes push out no task of
// alice.
func TestKnownTasksAreBoundedForEachPrincipal(t *testing.T) {
	t.Parallel()
	var o taskOwners
	alice, bob := principal.New("token:alice"), principal.New("token:bob")
	add := func(who *principal.Principal, raw string) { o.add(who.Name(), o.keyOf([]byte(raw)), true) }
	add(alice, `"a"`)
	for n := range 2 * tasksKept {
		add(bob, fmt.Sprintf(`"%d"`, n))
	}
	for raw, want := range map[string]bool{`"0"`: false, fmt.Sprintf(`"%d"`, 2*tasksKept-1): true, `"a"`: false, `null`: false, `7`: false, ``: false} {
		equal(t, "bob's "+raw, fmt.Sprint(o.has(bob, []byte(raw))), fmt.Sprint(want))
	}
	equal(t, "alice's", fmt.Sprint(o.has(alice, []byte(`"\u0061"`))), "true")
	equal(t, "kept", fmt.Sprint(len(o.of["token:bob"]), len(o.owner)), fmt.Sprint(tasksKept, tasksKept+1))
}
