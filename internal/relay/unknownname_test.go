package relay

import (
	"fmt"
	"testing"
)

// A request on the aggregate that names no object of a server is an error, whatever its method and
// however it names the object.
func TestANameOfNoServerIsAnErrorOnTheAggregate(t *testing.T) {
	t.Parallel()
	h := build(t, []Server{stdio(t, "s", "legacy").server()})
	for era, call := range clients(h, "/mcp", "uid:1000") {
		for _, c := range []struct{ method, member, code string }{
			{"tools/call", "name", "-32602"}, {"prompts/get", "name", "-32602"}, {"resources/read", "uri", "-32602"},
			{"resources/directory/read", "uri", "-32602"}, {"skills/get", "uri", "-32602"},
			{"tasks/get", "taskId", "-32602"}, {"tasks/result", "taskId", "-32602"}, {"tasks/update", "taskId", "-32602"}, {"tasks/cancel", "taskId", "-32602"},
			{"vendor/thing", "name", "-32601"}, {"vendor/thing", "uri", "-32601"}, {"vendor/thing", "taskId", "-32601"},
		} {
			for _, name := range []string{"nope", "nope__x", "doorward://nope/x", "s__", ""} {
				got := call(c.method, fmt.Sprintf(`{%q:%q}`, c.member, name))
				equal(t, fmt.Sprintf("%s %s %s=%q", era, c.method, c.member, name), field(got, "error", "code"), c.code)
			}
		}
	}
}
