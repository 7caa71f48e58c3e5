package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/policy"
)

// Progress of a parked call reaches the request that waits under its own token, and is dropped
// if that has none.
func TestProgressOfAParkedCall(t *testing.T) {
	t.Parallel()
	for first, next := range map[string]string{`"p"`: ``, `1`: `"q"`} {
		t.Run(first+" "+next, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", "legacy")
			s.serve = func(q *query) {
				q.ask(policy.AskElicitation, form)
				q.notify("notifications/progress", `{"progressToken":`+field(q.raw, "params", "_meta", "progressToken")+`,"progress":1}`)
				q.result(`{}`)
			}
			h := build(t, []Server{s.server()})
			m := h.modern("/mcp/s", "uid:1000")
			m.caps = elicits
			m.meta = []rawjson.Edit{{Key: "progressToken", Value: []byte(first)}}
			asked := m.tool("t", "")
			m.meta = nil
			if next != "" {
				m.meta = []rawjson.Edit{{Key: "progressToken", Value: []byte(next)}}
			}
			r := m.begin("tools/call", back(`"name":"t","arguments":{}`, asked, responses(asked, 1)))
			r.end()
			got := ""
			for _, msg := range r.before {
				got += field(msg, "params", "progressToken") + text(msg, "method")
			}
			want := ""
			if next != "" {
				want = next + "notifications/progress"
			}
			equal(t, "progress", got, want)
		})
	}
}
