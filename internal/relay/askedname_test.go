package relay

import (
	"fmt"
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
)

// borrowed lists the methods of clients, the acts on Doorward itself, and texts that read like a record of an act.
func borrowed() []string {
	all := []string{"initialize", "server/discover", "tools/call", "tools/list", "prompts/get", "prompts/list", "resources/read", "resources/list",
		"resources/subscribe", "completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/cancel", "x/y",
		policy.ActionAdmin, policy.ActionApprove, "agent.send", "instructions.read", "question", "ask", "session"}
	for _, method := range slices.Clone(all) {
		all = append(all, method+" quiz/t", method+" other/t  allow by default.owner", method+"\n9  uid:1000  "+method)
	}
	return all
}

// The record of what a server asks names no act of a client, whichever method the server chooses and wherever the question is.
func TestAQuestionIsRecordedAsNoActOfItsClient(t *testing.T) {
	t.Parallel()
	for way, ask := range map[string]func(*testing.T, []string) *house{"requests": askedByRequests, "results": askedByResults} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			methods := borrowed()
			h := ask(t, methods)
			acts := map[string]int{}
			for _, r := range h.records() {
				if r.Kind == audit.Decision {
					acts[r.Action+" "+r.Resource]++
				}
			}
			delete(acts, "initialize quiz")
			equal(t, "calls", fmt.Sprint(acts["tools/call quiz/t"]), fmt.Sprint(len(methods)))
			delete(acts, "tools/call quiz/t")
			for _, method := range methods {
				act := question.Other + " quiz/" + method
				equal(t, "records of "+method, fmt.Sprint(acts[act]), "1")
				delete(acts, act)
			}
			for act, n := range acts {
				t.Errorf("%d records of %q", n, act)
			}
		})
	}
}

// askedByRequests has a legacy server send a request with each method.
func askedByRequests(t *testing.T, methods []string) *house {
	h := build(t, []Server{asking(t, web).server()})
	c := h.legacy("/mcp/quiz", "uid:1000", `{}`)
	for _, method := range methods {
		r := c.begin("tools/call", fmt.Sprintf(`{"name":"t","arguments":{"method":%q,"params":{}}}`, method))
		c.post(`{"jsonrpc":"2.0","id":` + field(r.next(), "id") + `,"error":{"code":-32601,"message":"no"}}`)
		r.end()
	}
	return h
}

// askedByResults has a modern server require an answer to each method.
func askedByResults(t *testing.T, methods []string) *house {
	s := web(t, "quiz", "modern")
	s.serve = func(q *query) {
		q.result(`{"resultType":"input_required","inputRequests":{"k":{"method":%q,"params":{}}}}`, q.arg("method"))
	}
	h := build(t, []Server{s.server()})
	m := h.modern("/mcp/quiz", "uid:1000")
	m.caps = everyCapability
	for _, method := range methods {
		equal(t, method, code(m.tool("t", fmt.Sprintf(`"method":%q`, method))), "1502")
	}
	return h
}
