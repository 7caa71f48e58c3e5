package relay

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
)

// However many principals make tasks, a bounded number is known, and the principal with the most
// gives way: one that has few keeps them.
func TestKnownTasksOfAllPrincipalsAreBounded(t *testing.T) {
	t.Parallel()
	var o taskOwners
	few := principal.New("token:few")
	o.add(few.Name(), o.keyOf([]byte(`"mine"`)), true)
	for n := range tasksKnown + tasksKnown/2 {
		o.add(fmt.Sprint("token:", n%100), o.keyOf(fmt.Appendf(nil, `"%d"`, n)), true)
	}
	held := 0
	for _, tasks := range o.of {
		held += len(tasks)
	}
	if len(o.owner) > tasksKnown || held != len(o.owner) || !o.has(few, []byte(`"mine"`)) {
		t.Errorf("%d known, %d held, the few known: %v", len(o.owner), held, o.has(few, []byte(`"mine"`)))
	}
}

// A task remains its principal's when its session goes on after a restart of the daemon, and when
// the server's definition is replaced; another principal does not reach it. An id that the server
// has given to another principal since belongs to that one, and a server at another address has no
// task of before.
func TestATaskOutlivesTheDaemonWithItsSession(t *testing.T) {
	t.Parallel()
	for kind, start := range map[string]func(*testing.T, string, string) *script{"http": web, "sse": events} {
		for path, prefix := range map[string]string{"/mcp/s": "", "/mcp": "s__"} {
			t.Run(kind+" "+path, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "sessions")
				s := withTasks(t, start)
				h := build(t, []Server{s.server()}, keeping(t, dir))
				alice, bob := h.legacy(path, "token:alice", `{}`), h.legacy(path, "token:bob", `{}`)
				alice.tool(prefix+"echo", "")
				reaches := func(c *session, want bool) {
					t.Helper()
					got := field(c.call("tasks/get", `{"taskId":"`+prefix+`t-1"}`), "error")
					if (got == "") != want {
						t.Errorf("%s reaches the task: %v (%s)", c.who, !want, got)
					}
				}
				each := func(alices, bobs bool) { t.Helper(); reaches(bob, bobs); reaches(alice, alices); reaches(bob, bobs) }
				again := func(at *script) {
					h.door.Close()
					h = build(t, []Server{at.server()}, keeping(t, dir))
					alice.house, bob.house = h, h
				}
				each(true, false)
				h.relay.SetServers([]Server{s.server()})
				each(true, false)
				again(s)
				each(true, false)
				again(withTasks(t, start))
				each(false, false)
				bob.tool(prefix+"echo", "")
				each(false, true)
				again(s)
				each(true, false)
			})
		}
	}
}

// An id that a server gives out again is reached by the principal that got it last alone.
func TestATaskIdUsedAgainHasOneOwner(t *testing.T) {
	t.Parallel()
	s := withTasks(t, web)
	h := build(t, []Server{s.server()})
	alice, bob := h.legacy("/mcp/s", "token:alice", `{}`), h.legacy("/mcp/s", "token:bob", `{}`)
	serve := s.serve
	s.serve = func(q *query) {
		if q.Method == "tools/call" {
			q.result(`{"task":{"taskId":"t-1","status":"working"}}`)
			return
		}
		serve(q)
	}
	alice.tool("echo", "")
	bob.tool("echo", "")
	for c, want := range map[*session]bool{alice: false, bob: true} {
		equal(t, c.who, fmt.Sprint(field(c.call("tasks/get", `{"taskId":"t-1"}`), "error") == ""), fmt.Sprint(want))
	}
}
