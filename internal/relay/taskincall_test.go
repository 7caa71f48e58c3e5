package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
)

// A task notification that a server sends during a call goes to the listens that name the task,
// under the id that their client knows, and not to the caller: SEP-2663 sends it through a
// listen, and the server's own id means nothing to a client.
func TestATaskThatChangesDuringACall(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, path := range []string{"/mcp/s", "/mcp"} {
			t.Run(kind+" "+path, func(t *testing.T) {
				t.Parallel()
				s := start(t, "s", "modern")
				s.serve = func(q *query) {
					switch {
					case q.Method == "tasks/get":
						q.result(`{"taskId":"inner-1","status":"working"}`)
					case strings.Contains(string(q.Params), "tell"):
						for _, id := range []string{"inner-2", "inner-1"} {
							q.notify(protocol.TaskChanged, fmt.Sprintf(`{"taskId":%q,"status":"completed"}`, id))
						}
						q.result(`{"content":[]}`)
					default:
						q.result(`{"resultType":"task","taskId":"inner-%d","status":"working"}`, len(s.got("tools/call")))
					}
				}
				h := build(t, []Server{s.server()})
				m, bob := h.modern(path, "uid:1000"), h.modern(path, "token:bob")
				name := map[string]string{"/mcp/s": "make", "/mcp": "s__make"}[path]
				mine := text(m.tool(name, ""), "result", "taskId")
				bob.tool(name, "")
				listen, _ := m.subscribe(`{"taskIds":["` + mine + `"]}`)
				in := m.begin("tools/call", `{"name":"`+name+`","arguments":{"do":"tell"}}`)
				for raw := in.next(); ; raw = in.next() {
					if strings.Contains(raw, "inner") || text(raw, "method") == protocol.TaskChanged {
						t.Errorf("the call got %s", raw)
					}
					if field(raw, "result") != "" {
						break
					}
				}
				got := listen.next()
				equal(t, "the listen got", text(got, "method")+" "+text(got, "params", "taskId"), protocol.TaskChanged+" "+mine)
			})
		}
	}
}
