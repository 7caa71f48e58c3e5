package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// The messages of a legacy server during a call that a modern client continues pass the content
// rules: questions and notifications alike.
func TestScanOfACallThatAModernClientContinues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode                       scan.Mode
		question, progress, answer string
	}{
		{scan.Redact, `"message":"[s] tell [redacted:canary]"`, `"message":"[redacted:canary]"`, "1"},
		{scan.Block, "", "", ""},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "s", "legacy")
			s.serve = func(q *query) {
				q.notify("notifications/progress", `{"progressToken":`+field(q.raw, "params", "_meta", "progressToken")+`,"progress":1,"message":"canary-4711"}`)
				answer := q.ask(policy.AskElicitation, `{"message":"tell canary-4711","requestedSchema":{}}`)
				q.result(`{"said":"%s"}`, field(answer, "result", "content", "n"))
			}
			h := build(t, []Server{s.server(scannedBy(t, c.mode))})
			m := h.modern("/mcp/s", "uid:1000")
			m.caps = elicits
			got := answer(m, "tools/call", `"name":"t","_meta":{"progressToken":1}`, 1)
			contains(t, "questions", join(got.rounds), c.question)
			contains(t, "progress", join(got.before), c.progress)
			equal(t, "answer", text(got.end, "result", "said"), c.answer)
			if c.mode == scan.Block && len(got.rounds)+len(got.before) > 0 {
				t.Errorf("it got through: %s %s", got.rounds, got.before)
			}
			noCanary(t, h)
		})
	}
}
