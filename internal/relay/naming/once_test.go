package naming

import (
	"regexp"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/upstream"
)

// everywhere has a name of the server in each _meta and in each place of a result and of a
// notification that has one.
const everywhere = `{"_meta":` + names + `,"taskId":"NAME","uri":"NAME","logger":"NAME","resultType":"task",
 "task":{"taskId":"NAME"},
 "content":[{"type":"resource_link","uri":"NAME","_meta":` + names + `},{"type":"resource","resource":{"uri":"NAME","_meta":` + names + `}}],
 "contents":[{"uri":"NAME","_meta":` + names + `}],
 "messages":[{"role":"user","content":{"type":"resource_link","uri":"NAME","_meta":` + names + `}}],
 "resources":[{"uri":"NAME","_meta":` + names + `}],
 "skill":{"uri":"NAME","resources":[{"uri":"NAME"}],"_meta":` + names + `},
 "result":{"_meta":` + names + `,"content":[{"type":"resource_link","uri":"NAME"}]},
 "inputRequests":{"k":{"params":{"_meta":` + names + `,"messages":[{"content":[{"type":"resource_link","uri":"NAME"}]}]}}}}`

const names = `{"ui":{"resourceUri":"NAME"},"ui/resourceUri":"NAME","io.modelcontextprotocol/related-task":{"taskId":"NAME"}}`

// renamed is one string of a rewritten message that has the server's name.
var renamed = regexp.MustCompile(`"[^"]*NAME"`)

// Each name in a message is the server's own or has the server's name in front once, and those
// in the message's own _meta have it.
func TestANameIsRewrittenOnce(t *testing.T) {
	t.Parallel()
	made := make(map[string][]byte)
	for _, method := range []string{"tools/call", "tools/list", "tasks/result", "tasks/get", "tasks/cancel", "tasks/update", "prompts/get", "resources/read",
		"resources/directory/read", "skills/get", "completion/complete", "vendor/unknown"} {
		made[method] = Server("srv").Result(method, []byte(everywhere))
	}
	for _, method := range []string{"notifications/progress", "notifications/message", "notifications/resources/updated", "notifications/vendor",
		protocol.ToolsChanged, protocol.TaskStatus, protocol.TaskChanged} {
		made[method] = Event("srv", upstream.Event{Method: method, Params: []byte(everywhere)})
	}
	once := map[string]bool{`"NAME"`: true, `"srv__NAME"`: true, `"doorward://srv/NAME"`: true}
	own := regexp.MustCompile(`^\{"_meta":\{"ui":\{"resourceUri":"doorward://srv/NAME"\},"ui/resourceUri":"doorward://srv/NAME","io.modelcontextprotocol/related-task":\{"taskId":"srv__NAME"\}\}`)
	for method, message := range made {
		for _, name := range renamed.FindAllString(string(message), -1) {
			if !once[name] {
				t.Errorf("%s has %s", method, name)
			}
		}
		if !own.Match(message) {
			t.Errorf("%s keeps names in its _meta: %.200s", method, message)
		}
	}
}
