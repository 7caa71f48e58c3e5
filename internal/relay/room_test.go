package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/process"
)

// capped gives a server room for so many processes, each of one session.
func capped(most int) func(*Server, *upstream.Definition) {
	return func(s *Server, _ *upstream.Definition) { s.Instances, s.MaxInstances = "session", most }
}

// scripted returns a server whose calls answer the number of their process. The call long waits.
func scripted(t *testing.T, name string) *script {
	s := stdio(t, name, "legacy")
	s.serve = func(q *query) {
		if q.name() == "long" {
			q.arrive()
		}
		q.result(`{"n":%d}`, q.n)
	}
	return s
}

// frontOf returns the session of a client.
func (h *house) frontOf(c *session) (found *front.Session) {
	sum := sha256.Sum256([]byte(c.id))
	h.door.Each(func(s *front.Session) bool {
		if s.Digest == hex.EncodeToString(sum[:8]) {
			found = s
		}
		return found == nil
	})
	return found
}

// idle waits until a session has neither a call nor a stream.
func (h *house) idle(c *session) {
	h.t.Helper()
	eventually(h.t, "the session is idle", func() bool { _, idle := h.frontOf(c).IdleSince(); return idle })
}

// The states of a session. In the state left alone its process may give way.
var roomStates = []string{"left", "listens", "calls", "has a task", "is of another"}

// inState opens a session with a process in a state.
func inState(h *house, s *script, state string) *session {
	who := "token:ann"
	if state == "is of another" {
		who = "token:bob"
	}
	c := h.legacy("/mcp/"+s.name, who, `{}`)
	switch state {
	case "listens":
		c.listen()
		eventually(h.t, "it listens", h.frontOf(c).Listening)
		return c
	case "calls":
		var running sync.WaitGroup
		running.Go(func() { c.begin("tools/call", `{"name":"long"}`).end() })
		h.t.Cleanup(running.Wait) // the test's context has ended, and with it the call
		eventually(h.t, "it calls", func() bool { _, idle := h.frontOf(c).IdleSince(); return !idle })
		return c
	case "has a task":
		c.call("tools/call", `{"name":"t","task":{"ttl":60000}}`)
	}
	h.idle(c)
	return c
}

// A start that max_instances or limits.children would refuse ends the process of the session of the
// same principal that its client left first, and no other process.
func TestTheSessionLeftFirstMakesRoom(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"max_instances", "limits.children"} {
		for _, first := range roomStates {
			for _, second := range roomStates {
				t.Run(limit+": first "+first+", second "+second, func(t *testing.T) {
					t.Parallel()
					a := scripted(t, "a")
					b, servers := a, []Server{}
					if limit == "max_instances" {
						servers = append(servers, a.server(capped(2)))
					} else {
						b = scripted(t, "b")
						servers = fewChildren(t, a, b)
					}
					h := build(t, servers)
					h.relay.sessions.left = 0
					one, two := inState(h, a, first), inState(h, b, second)
					links := func(c *session) int { return len(bound(h.frontOf(c)).all()) }
					next := &session{house: h, who: "token:ann", path: "/mcp/a", version: "2025-11-25"}
					answer := next.hello0(`{}`).end()
					want := ""
					if first != "left" && second != "left" {
						want = "1503"
					}
					equal(t, "the start", code(answer), want)
					equal(t, "the first gives way", strconv.FormatBool(links(one) == 0), strconv.FormatBool(first == "left"))
					equal(t, "the second gives way", strconv.FormatBool(links(two) == 0), strconv.FormatBool(first != "left" && second == "left"))
				})
			}
		}
	}
}

// fewChildren returns servers that have two processes together.
func fewChildren(t *testing.T, all ...*script) (servers []Server) {
	t.Helper()
	r, err := process.NewRunner(process.Options{Max: 2, Stdin: 300 * time.Millisecond, Term: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		var def upstream.Definition
		server := s.server(capped(0), func(_ *Server, d *upstream.Definition) { def = *d })
		up, err := upstream.New(def, upstream.Deps{Runner: r, Log: slog.New(slog.DiscardHandler), ClientInfo: []byte(`{"name":"doorward","version":"test"}`)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(up.Close)
		server.Upstream = up
		servers = append(servers, server)
	}
	return servers
}

// A session that was used a moment ago does not make room. The end of a call is a use.
func TestASessionOfAMomentAgoMakesNoRoom(t *testing.T) {
	t.Parallel()
	s := scripted(t, "s")
	h := build(t, []Server{s.server(capped(2))})
	one := h.legacy("/mcp/s", "token:ann", `{}`)
	done := make(chan struct{})
	go func() { defer close(done); one.begin("tools/call", `{"name":"long"}`).end() }()
	eventually(t, "it calls", func() bool { return len(s.got("tools/call")) == 1 })
	two := inState(h, s, "left")
	next := &session{house: h, who: "token:ann", path: "/mcp/s", version: "2025-11-25"}
	equal(t, "a moment ago", code(next.hello0(`{}`).end()), "1503")

	close(s.proceed)
	<-done
	h.idle(one)
	h.relay.sessions.left = 0
	equal(t, "later", code(next.hello0(`{}`).end()), "")
	equal(t, "the one whose call ended first stays", strconv.Itoa(len(bound(h.frontOf(one)).all())), "1")
	equal(t, "the other", strconv.Itoa(len(bound(h.frontOf(two)).all())), "0")
	two.tool("t", "")
}

// Starts at once end one process each, and none of a session that its client has not left.
func TestStartsAtOnceMakeRoomForEach(t *testing.T) {
	t.Parallel()
	s := scripted(t, "s")
	h := build(t, []Server{s.server(capped(4))})
	h.relay.sessions.left = 0
	stays := inState(h, s, "listens")
	for range 3 {
		inState(h, s, "left")
	}
	b := h.relay.table.Load().byName["s"]
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			c := &session{house: h, who: "token:ann", path: "/mcp/s", version: "2025-11-25"}
			equal(t, "a start", code(c.hello0(`{}`).end()), "")
		})
	}
	wg.Wait()
	if n := b.instances(); n > 4 {
		t.Errorf("%d processes", n)
	}
	equal(t, "the one that listens", strconv.Itoa(len(bound(h.frontOf(stays)).all())), "1")
}
