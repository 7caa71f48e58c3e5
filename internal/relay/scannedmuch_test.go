package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// Findings in what a server says outside of calls are summed up and name no act of its client, whichever methods the server
// chooses: the record grows with the kinds of messages, and each finding is counted.
func TestFindingsOutsideOfCallsAreSummedUpUnderAnyMethod(t *testing.T) {
	t.Parallel()
	s := stdio(t, "quiz", "legacy")
	h := build(t, []Server{s.server(scannedBy(t, scan.Redact))})
	h.legacy("/mcp/quiz", "uid:1000", elicits).listen()
	conn := s.open()[0]
	said := int64(0)
	for i := range 200 {
		conn.tell(fmt.Sprint("notifications/n", i), `{"x":"canary-4711"}`)
		said++
	}
	for i, method := range borrowed() {
		conn.tell("notifications/"+method, `{"x":"canary-4711"}`)
		conn.say(rawjson.AppendRequest(nil, wire.IntID(int64(i)), method, []byte(`{"x":"canary-4711"}`)))
		said += 2
	}
	actions, flushes := map[string]int{}, 0
	eventually(t, "a count of each finding", func() bool {
		h.relay.table.Load().byName["quiz"].unasked.Flush(time.Now().Add(time.Hour))
		flushes++
		clear(actions)
		counted := int64(0)
		for _, r := range h.records() {
			if r.Source == "scan" {
				actions[r.Action]++
				counted += r.Count
			}
		}
		return counted == said
	})
	for action, n := range actions {
		if action != "notification" && action != question.Other || n > 2*flushes {
			t.Errorf("%d records of findings in %q after %d flushes", n, action, flushes)
		}
	}
}
