package relay

import (
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/doortest"
)

// A question that a legacy server asks without params can be read by the client of the Go SDK,
// on both routes.
func TestAQuestionWithoutParamsIsAnInputRequest(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/mcp/quiz", "/mcp"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "quiz", "legacy")
			s.serve = func(q *query) { q.result(`{"content":[],"answer":%s}`, q.ask(policy.AskRoots, "")) }
			m := build(t, []Server{s.server()}, withRules("quiz", everyTool, askAll)).modern(path, "uid:1000")
			m.caps = `{"roots":{}}`
			params := fmt.Sprintf(`{%s}`, object("tools/call", path, "t"))
			end := m.begin("tools/call", params).end()
			requests := rawjson.GetPath([]byte(end), "result", wire.InputRequests)
			var read []string
			if doortest.AskSDK(t, &read, "inputs", string(requests)); len(read) != 1 {
				t.Errorf("the client reads %s: %v", requests, read)
			}
		})
	}
}
