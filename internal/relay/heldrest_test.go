package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Whatever a server gets of the params of a held call beside its name, its arguments and _meta is
// shown to the operator. An approval of one call lets through no call that differs in it.
func TestAnApprovalIsForTheWholeCall(t *testing.T) {
	t.Parallel()
	for _, more := range []string{`"args":{"rm":"x"}`, `"task":{"ttl":1}`, `"uri":"file:///x"`, `"x":null`, `"inputResponses":{"k":{"action":"accept"}},"requestState":"own"`} {
		for _, args := range []string{"", `,"arguments":{}`, `,"arguments":{"a":1}`} {
			t.Run(more+args, func(t *testing.T) {
				t.Parallel()
				s := stdio(t, "s", "legacy")
				s.serve = func(q *query) { q.result(`{"content":[]}`) }
				d := &counter{t: t}
				h := build(t, []Server{s.server()}, withCounter(d, "s", "", time.Millisecond))
				c := h.legacy("/mcp/s", "uid:1000", `{}`)
				call := func(more string) string { return c.call("tools/call", `{"name":"t"`+args+more+`}`) }
				equal(t, "plain", field(call(""), "result", "structuredContent", "pending"), "1")
				if err := d.queue.Settle(principal.New("uid:1000"), 1, "", approval.Verdict{Approve: true}); err != nil {
					t.Fatal(err)
				}
				equal(t, "with more", field(call(","+more), "result", "structuredContent", "pending"), "2")
				equal(t, "reached the server", fmt.Sprint(len(s.got("tools/call"))), "0")
				q := d.queue.Pending()[0]
				equal(t, "shown", q.Rest, "{"+more+"}")
				if q.Rest = ""; q.Digest() == q.Preview {
					t.Error("the digest of what was shown does not cover it")
				}
				d.settle(approval.Verdict{Approve: true})
				equal(t, "approved", field(call(","+more), "result", "content"), "[]")
				equal(t, "the plain one", field(call(`,"_meta":{"trace":"other"}`), "result", "content"), "[]")
			})
		}
	}
}
