package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
)

// A server that is refused question after question does not fill the record: each question is
// counted there, and few are recorded one by one.
func TestRefusedQuestionsDoNotFillTheRecord(t *testing.T) {
	t.Parallel()
	const asked = 1000
	for method, allowed := range map[string]policy.List{policy.AskElicitation: {}, policy.AskSampling: {}, policy.AskRoots: askAll, "x/y": elicitation} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "quiz", "legacy")
			s.serve = func(q *query) {
				for n := range asked {
					m := method
					if m == "x/y" {
						m = fmt.Sprintf("x/y%d", n)
					}
					q.ask(m, `{"message":"m"}`)
				}
				q.result(`{}`)
			}
			h := build(t, []Server{s.server()}, withRules("quiz", everyTool, allowed))
			h.legacy("/mcp/quiz", "uid:1000", `{}`).tool("t", "")
			h.relay.table.Load().byName["quiz"].unasked.Flush(time.Now().Add(time.Hour))
			single, summed := 0, int64(0)
			for _, r := range h.records() {
				switch {
				case r.Kind == audit.Event && r.Result == "refused":
					summed += r.Count
				case r.Kind == audit.Decision && (r.Resource == "quiz" || r.Action == question.Other) && r.Action != "initialize":
					single++
				}
			}
			if single > 2*refusedBurst || int64(single)+summed != asked {
				t.Errorf("of %d questions %d are recorded one by one, and %d are summed up", asked, single, summed)
			}
		})
	}
}

// Questions that the client answers, and few that are refused, are recorded one by one.
func TestEachUsualQuestionIsRecorded(t *testing.T) {
	t.Parallel()
	const asked = refusedBurst / 2
	s := stdio(t, "quiz", "legacy")
	s.serve = func(q *query) {
		for range asked {
			q.ask(policy.AskElicitation, `{"message":"m"}`)
			q.ask(policy.AskSampling, `{}`)
		}
		q.result(`{}`)
	}
	h := build(t, []Server{s.server()})
	h.legacy("/mcp/quiz", "uid:1000", `{}`).tool("t", "")
	for _, method := range []string{policy.AskElicitation, policy.AskSampling} {
		if n := h.count(method, "quiz"); n != asked {
			t.Errorf("%d records of %s, want %d", n, method, asked)
		}
	}
}
