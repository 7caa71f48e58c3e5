package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/doortest"
)

// jsonMode starts a server that answers with JSON, so that everything it sends during a call
// comes on the listening stream. Its tool work begins when that stream is open.
func jsonMode(t *testing.T) *script {
	t.Helper()
	return &script{t: t, name: "json", kind: "http", address: doortest.ServeSDK(t, "-json")}
}

// A client receives the progress, log messages and questions of a call from a server in JSON
// response mode with that call, and the progress before the answer.
func TestAServerInJSONModeIsHeardDuringACall(t *testing.T) {
	t.Parallel()
	const call = `{"name":"work","_meta":{"progressToken":"p","io.modelcontextprotocol/logLevel":"info"}}`
	progress := func(t *testing.T, got []string) {
		t.Helper()
		var steps []string
		for _, m := range got {
			if field(m, "method") == `"notifications/progress"` {
				steps = append(steps, text(m, "params", "progressToken")+field(m, "params", "progress"))
			}
		}
		equal(t, "progress on the stream of the call", join(steps), "p1 p2 p3")
	}
	house := func(t *testing.T) *house {
		s := jsonMode(t)
		return build(t, []Server{s.server(func(b *Server, _ *upstream.Definition) { b.Protocol = "legacy" })}, withRules("json", everyTool, askAll))
	}
	t.Run("modern", func(t *testing.T) {
		t.Parallel()
		m := house(t).modern("/mcp/json", "uid:1000")
		m.caps = elicits
		r := m.begin("tools/call", call)
		asked := r.end()
		contains(t, "question", asked, `"input_required"`, "[json] who?")
		progress(t, r.before)
		contains(t, "log", join(r.before), `"logged"`)
		contains(t, "answer", m.call("tools/call", back(`"name":"work"`, asked, responses(asked, 1))), "action=accept")
	})
	t.Run("legacy", func(t *testing.T) {
		t.Parallel()
		c := house(t).legacy("/mcp/json", "uid:1000", `{"elicitation":{}}`)
		listen := c.listen()
		c.call("logging/setLevel", `{"level":"info"}`)
		r := c.begin("tools/call", call)
		contains(t, "log", listen.nextOf("notifications/message"), `"logged"`)
		q := listen.nextOf("elicitation/create")
		c.answer(q, `{"action":"accept","content":{}}`)
		contains(t, "answer", r.end(), "action=accept")
		progress(t, r.before)
	})
}

// A modern request whose log level is not one of the protocol's is refused.
func TestAnUnknownLogLevelIsRefused(t *testing.T) {
	t.Parallel()
	s := chatty(t, transports["stdio"])
	h := build(t, []Server{s.server()})
	for _, path := range []string{"/mcp", "/mcp/" + s.name} {
		for _, level := range []string{`"loud"`, `"Info"`, `""`, `7`, `null`, `["info"]`} {
			for _, method := range []string{"tools/list", "tools/call", "server/discover", "subscriptions/listen"} {
				m := h.modern(path, "uid:1000")
				got := m.begin(method, `{"name":"x","_meta":{"io.modelcontextprotocol/logLevel":`+level+`}}`).next()
				equal(t, path+" "+method+" "+level, code(got), "-32602")
			}
		}
	}
}
