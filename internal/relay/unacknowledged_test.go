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
	h := build(t, []Server{s.server(func(s *Server, _ *upstream.Definition) { s.Timeout = time.Second })})
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	equal(t, "the subscription", code(c.call("resources/subscribe", `{"uri":"file:///a"}`)), "1504")
}
