package relay

import (
	"strings"
	"testing"
)

// A client on the aggregate gets the names of the aggregate in a question of a call that is
// parked, and the server's own names on the server's route.
func TestAQuestionOfAParkedCallHasTheNamesOfTheAggregate(t *testing.T) {
	t.Parallel()
	const question = `"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"resource_link","name":"n","uri":"file:///a"}}],"maxTokens":9}`
	for path, c := range map[string]struct{ tool, uri string }{"/mcp": {"quiz__t", "doorward://quiz/file:///a"}, "/mcp/quiz": {"t", "file:///a"}} {
		for kind, start := range transports {
			t.Run(kind+path, func(t *testing.T) {
				t.Parallel()
				h := build(t, []Server{asking(t, start).server()}, withRules("quiz", everyTool, askAll))
				m := h.modern(path, "uid:1000")
				m.caps = everyCapability
				asked := m.tool(c.tool, question)
				equal(t, "result", text(asked, "result", "resultType"), "input_required")
				if !strings.Contains(asked, `"uri":"`+c.uri+`"`) {
					t.Errorf("the question is %s", asked)
				}
			})
		}
	}
}
