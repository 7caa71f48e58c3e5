package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/upstream"
)

// clean makes the programs of a script end with exit status 0, and at once: the race detector
// sleeps at the end of a program.
func clean(_ *Server, def *upstream.Definition) {
	def.Args = append(def.Args, "clean")
	def.Env = []string{"GORACE=atexit_sleep_ms=0"}
}

// A program that ends by itself without an error is not started again for those that listen.
// The next call starts it, and they are told to look again.
func TestAProgramThatEndsCleanlyIsStartedAtTheNextCall(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"legacy", "modern"} {
		t.Run("legacy client, "+server+" server", func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", server)
			h := build(t, []Server{s.server(clean)})
			c := h.legacy("/mcp/s", "uid:1000", `{}`)
			c.tool("t", "")
			stream := c.listen()
			s.finish(&bound(h.sessionOf(c)).all()[0].link.hub)
			c.tool("t", "")
			equal(t, "told to look again", text(stream.next(), "method"), protocol.ToolsChanged)
		})
		t.Run("modern client, "+server+" server", func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", server)
			h := build(t, []Server{s.server(clean)})
			m := h.modern("/mcp/s", "uid:1000")
			stream, _ := m.subscribe(`{"toolsListChanged":true}`)
			for _, l := range h.relay.table.Load().byName["s"].pool {
				s.finish(&l.hub)
			}
			m.tool("t", "")
			equal(t, "told to look again", text(stream.next(), "method"), protocol.ToolsChanged)
		})
	}
}

// finish ends the script's program, and does what a hub does at that end, without its pauses.
func (s *script) finish(h *hub) {
	s.t.Helper()
	eventually(s.t, "the hub listens", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.guarded != nil || h.now != nil
	})
	c, connected := h.live.Load(), s.connected()
	s.open()[len(s.open())-1].close()
	eventually(s.t, "the connection ends", func() bool { return !c.alive() })
	h.mu.Lock()
	guard, now := h.guarded, h.now
	h.mu.Unlock()
	if guard != nil {
		guard.revive()
	}
	if now != nil {
		h.reopen(now, true, true)
	}
	if n := s.connected(); n != connected {
		s.t.Errorf("%d programs were started, want %d", n, connected)
	}
}

// A listen that ends soon is opened again later each time; one that was open for long is not
// held responsible.
func TestListensThatEndSoonAreOpenedLater(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		acknowledged bool
		open         int // times steadyTime
		tries        int
	}{
		"refused":               {false, 0, 4},
		"ended soon":            {true, 0, 4},
		"ended after a while":   {true, 1, 0},
		"refused after a while": {false, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &listening{began: time.Now(), tries: 3}
				time.Sleep(time.Duration(c.open) * steadyTime)
				if tries := l.next(c.acknowledged); tries != c.tries {
					t.Errorf("%d tries, want %d", tries, c.tries)
				}
			})
		})
	}
}

// A server that policy denies to each client that listens is not connected again for the
// listen of a modern client.
func TestADeniedListenStartsNothing(t *testing.T) {
	t.Parallel()
	for kind, start := range everyTransport {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := start(t, "s", "legacy")
			h := build(t, []Server{s.server()})
			h.modern("/mcp/s", "uid:1000").subscribe(`{"toolsListChanged":true}`)
			var hub *hub
			for _, l := range h.relay.table.Load().byName["s"].pool {
				hub = &l.hub
			}
			c, connected := hub.live.Load(), s.connected()
			h.forbid(`forbid (principal, action, resource == Server::"s");`)
			s.open()[len(s.open())-1].close()
			eventually(t, "the connection ends", func() bool { return !c.alive() })
			if hub.now.retry(1) || s.connected() != connected {
				t.Errorf("%d connections, want %d", s.connected(), connected)
			}
		})
	}
}
