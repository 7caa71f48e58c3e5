package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/upstream"
)

// Each of four legacy programs that start slowly, as package runners with an empty
// cache do, is started once by a modern client, and is not ended before it has
// answered. The start takes longer than a probe and a call may.
func TestAColdProgramIsStartedOnce(t *testing.T) {
	t.Parallel()
	var scripts []*script
	var servers []Server
	for i := range 4 {
		s := tardy(stdio(t, fmt.Sprintf("s%d", i), "legacy"), 8*time.Second)
		scripts = append(scripts, s)
		servers = append(servers, s.server(func(r *Server, d *upstream.Definition) { d.Timeout, r.Timeout = 4*time.Second, 4*time.Second }))
	}
	h := build(t, servers)
	m := h.modern("/mcp", "uid:1000")
	equal(t, "the first list", join(names(within(t, "the first list", func() string { return m.call("tools/list", `{}`) }), "tools", "name")), "")
	eventually(t, "every server is there", func() bool {
		return len(names(m.call("tools/list", `{}`), "tools", "name")) == len(servers)
	})
	for _, s := range scripts {
		if n := s.connected(); n != 1 || len(s.open()) != 1 {
			t.Errorf("server %s was started %d times, %d run", s.name, n, len(s.open()))
		}
		if first := s.got("server/discover"); len(first) != 1 || len(s.got("initialize")) != 1 {
			t.Errorf("server %s was asked %d times for one era and %d times for the other", s.name, len(first), len(s.got("initialize")))
		}
	}
}

// Clients whose capabilities differ have processes of their own, which are not
// started at once while none has worked: the second waits for the first.
func TestFirstStartsOfAProgramTakeTurns(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.refuse = func(*query) bool {
		if s.connected() > 1 {
			return false
		}
		time.Sleep(time.Second) // the first program is slow
		if n := s.connected(); n != 1 {
			t.Errorf("%d programs were started before the first has answered", n)
		}
		return false
	}
	h := build(t, []Server{s.server()})
	done := make(chan string, 2)
	for _, caps := range []string{`{}`, elicits} {
		go func() {
			c := h.legacy("/mcp", "uid:1000", caps)
			done <- field(c.tool("s__t", ""), "error")
		}()
	}
	for range 2 {
		equal(t, "a call", <-done, "")
	}
	if n := s.connected(); n != 2 {
		t.Errorf("%d processes", n)
	}
}
