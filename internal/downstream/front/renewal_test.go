package front

import (
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A session of an access token waits for a renewed one of its principal: clients renew a token
// after it was refused, and do not open a new session then. Its streams end with the token, and
// no other principal finds it. A token of Doorward is not renewed, so its session ends, as does
// a session over the transport that is one stream.
func TestASessionWaitsForARenewedAccessToken(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		waits bool
	}{
		{"oauth:https://id.example.com#ada", true}, {"token:ci", false}, {"spawn:0123456789abcdef", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var expired atomic.Pointer[principal.Principal]
			h := open(t, Options{Sessions: 9, SessionsPerPrincipal: 9, Holds: func(p *principal.Principal) bool { return p != expired.Load() }})
			fact := principal.Fact{Name: "oauth_scope", Value: "more", Grade: principal.Verified}
			h.who = map[string]*principal.Principal{"old": principal.New(test.name), "renewed": principal.New(test.name, fact),
				"other": principal.New("oauth:https://id.example.com#eve")}
			id := h.session("2025-11-25", "Who", "old")
			_, listening := h.stream("GET", "/mcp/s", "", "Mcp-Session-Id", id, "Who", "old")
			_, legacy := h.stream("GET", "/sse/s", "", "Who", "old")

			expired.Store(h.who["old"])
			h.door.sweepLost()
			untilEnd(listening)
			untilEnd(legacy)
			h.eventually("the session that is one stream is over", func() bool { return h.door.Sessions() <= 1 })
			if a := h.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id, "Who", "other"); a.status != 404 {
				t.Errorf("another principal: %d %s", a.status, a.body)
			}
			a := h.do("POST", "/mcp/s", echo, "Mcp-Session-Id", id, "Who", "renewed")
			if got := a.status == 200; got != test.waits {
				t.Errorf("with a renewed token: %d %s", a.status, a.body)
			}
		})
	}
}

// untilEnd reads a stream until it ends.
func untilEnd(r *sse.Reader) {
	for {
		if _, err := r.Next(); err != nil {
			return
		}
	}
}
