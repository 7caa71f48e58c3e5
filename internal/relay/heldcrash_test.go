package relay

import (
	"testing"
	"time"
)

// A server that ends when it is asked for its tools is started once for a held call, and the operator is asked.
func TestAServerThatEndsDoesNotKeepTheOperatorFromBeingAsked(t *testing.T) {
	t.Parallel()
	s := stdio(t, "quiz", "legacy")
	const most = 20
	list := s.lists["tools/list"]
	s.setList("tools/list", "")
	s.serve = func(q *query) {
		if q.Method == "tools/list" && q.n < most {
			q.close()
			return
		}
		q.result("%s", list)
	}
	d := &counter{t: t}
	h := build(t, []Server{s.server(pinnedBy(shelf(t), false))}, withCounter(d, "quiz", "", time.Millisecond))
	waits := h.legacy("/mcp/quiz", "uid:1000", `{}`).tool("t", "")
	equal(t, "number of the question", field(waits, "result", "structuredContent", "pending"), "1")
	if n := s.connected(); n > 2 { // the start of the session, and one look
		t.Errorf("the server was started %d times", n)
	}
}
