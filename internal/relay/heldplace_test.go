package relay

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A call that a grant covers is made while as many calls of its caller wait as may.
func TestAGrantedCallNeedsNoPlace(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "legacy")
	s.setList("tools/list", `{"tools":[{"name":"granted"},{"name":"asked"}]}`)
	s.serve = func(q *query) { q.result(`{"content":[]}`) }
	d := &counter{t: t}
	h := build(t, []Server{s.server(pinnedBy(shelf(t), false))}, withCounter(d, "s", "", time.Hour))
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	settle := func(v approval.Verdict) {
		if err := d.queue.Settle(principal.New("uid:1000"), d.queue.Pending()[0].N, "", v); err != nil {
			t.Error(err)
		}
	}
	waiting := func(n int) func() bool {
		return func() bool { all := d.queue.Pending(); return len(all) == 1 && all[0].Waiting == n }
	}
	var all sync.WaitGroup
	all.Go(func() { c.tool("granted", "") })
	eventually(t, "one call waits", waiting(1))
	settle(approval.Verdict{Approve: true, For: approval.Always})
	all.Wait()
	for range 100 {
		all.Go(func() { c.tool("asked", "") })
	}
	eventually(t, "as many wait as may", waiting(100))
	equal(t, "a granted call", field(c.tool("granted", ""), "result", "content"), "[]")
	settle(approval.Verdict{Why: "no"})
	all.Wait()
	equal(t, "calls that were made", fmt.Sprint(len(s.got("tools/call"))), "2")
}

// An approval is for the rest of the params as it was shown: another notation of a number is another
// call, since the server would get it.
func TestARestInAnotherNotationIsAnotherCall(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) { q.result(`{"content":[]}`) }
	d := &counter{t: t}
	h := build(t, []Server{s.server()}, withCounter(d, "s", "", time.Millisecond))
	c := h.legacy("/mcp/s", "uid:1000", `{}`)
	call := func(rest string) string { return c.call("tools/call", `{"name":"t",`+rest+`}`) }
	call(`"x":1`)
	d.settle(approval.Verdict{Approve: true})
	for _, other := range []string{`"x":1.0`, `"x":1e0`, `"x":10e-1`} {
		contains(t, other, call(other), `"pending"`)
	}
	equal(t, "reached the server", fmt.Sprint(len(s.got("tools/call"))), "0")
	equal(t, "the one that was shown", field(call(`"x":1`), "result", "content"), "[]")
}
