package relay

import (
	"testing"
	"time"

	"github.com/doorward/doorward/internal/upstream"
)

// A subscription at a modern server that does not acknowledge it fails when the time of the
// server is over.
func TestASubscriptionIsNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.onListen = func(q *query) string { <-q.ctx.Done(); return "" }
	h := build(t, []Server{s.server(func(s *Server, _ *upstream.Definition) { s.Timeout = 2 * time.Second })})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	equal(t, "the subscription", code(c.call("resources/subscribe", `{"uri":"file:///a"}`)), "1504")
}

// A listen of a modern client ends with the same error, and its next one too.
func TestAListenIsNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.onListen = func(q *query) string { <-q.ctx.Done(); return "" }
	h := build(t, []Server{s.server(func(s *Server, _ *upstream.Definition) { s.Timeout = 2 * time.Second })})
	c := h.modern("/mcp/s", "uid:1000")
	for range 2 {
		equal(t, "the listen", code(c.call("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)), "1504")
	}
}
