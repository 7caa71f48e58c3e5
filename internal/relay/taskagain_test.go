package relay

import (
	"fmt"
	"path/filepath"
	"testing"
)

// A task whose id the server has given to another principal since is that one's also after a restart of the daemon, whichever
// session goes on first.
func TestATaskIdUsedAgainHasOneOwnerAfterARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sessions")
	s := withTasks(t, web)
	serve := s.serve
	s.serve = func(q *query) {
		if q.Method == "tools/call" {
			q.result(`{"task":{"taskId":"t-1","status":"working"}}`)
			return
		}
		serve(q)
	}
	h := build(t, []Server{s.server()}, keeping(t, dir))
	alice, bob := h.legacy("/mcp/s", "token:alice", `{}`), h.legacy("/mcp/s", "token:bob", `{}`)
	alice.tool("echo", "")
	bob.tool("echo", "")
	h.door.Close()
	h = build(t, []Server{s.server()}, keeping(t, dir))
	alice.house, bob.house = h, h
	for _, c := range []*session{alice, bob, alice} {
		reached := field(c.call("tasks/get", `{"taskId":"t-1"}`), "error") == ""
		equal(t, c.who, fmt.Sprint(reached), fmt.Sprint(c == bob))
	}
}
