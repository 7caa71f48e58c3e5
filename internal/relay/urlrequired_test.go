package relay

import (
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

const byURL = `{"elicitation":{"url":{}}}`

// gated is a legacy server that wants a URL opened before the first call.
func gated(t *testing.T, start func(*testing.T, string, string) *script) *script {
	s := start(t, "quiz", "legacy")
	s.serve = func(q *query) {
		if len(s.got(q.Method)) == 1 {
			q.emit(rawjson.AppendError(nil, q.ID, &wire.Error{Code: failure.CodeURLRequired, Message: "first this", Data: []byte(
				`{"elicitations":[{"mode":"url","elicitationId":"e1","url":"https://x.example/","message":"go"}]}`)}))
			return
		}
		q.result(`{"content":[],"params":%s}`, q.Params)
	}
	return s
}

// The error by which a legacy server wants a URL opened becomes input_required for a
// modern client. The call is made again when the client comes back with the answer.
func TestURLRequiredByALegacyServer(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, path := range []string{"/mcp/quiz", "/mcp"} {
			t.Run(kind+" "+path, func(t *testing.T) {
				t.Parallel()
				s := gated(t, start)
				h := build(t, []Server{s.server()})
				m := h.modern(path, "uid:1000")
				m.caps = byURL
				params := object("tools/call", path, "a")
				first := m.call("tools/call", `{`+params+`}`)
				equal(t, "kind", text(first, "result", "resultType"), "input_required")
				equal(t, "question", field(first, "result", wire.InputRequests),
					`{"quiz-1":{"method":"elicitation/create","params":{"mode":"url","url":"https://x.example/","message":"[quiz] go"}}}`)
				equal(t, "decided", h.outcome(h.decided(policy.AskElicitation, "quiz")), "asked")
				accepted := `{"quiz-1":{"action":"accept"}}`
				equal(t, "another's", code(h.modern(path, "token:bob").call("tools/call", back(params, first, accepted))), "-32602")
				equal(t, "declined", code(m.call("tools/call", back(params, first, `{"quiz-1":{"action":"decline"}}`))), "-32603")
				end := m.call("tools/call", back(params, first, accepted))
				equal(t, "the server's own params", field(end, "result", "params"), `{"name":"a","_meta":{}}`)
				equal(t, "calls", fmt.Sprint(len(s.got("tools/call"))), "2")
			})
		}
	}
}

// A client without elicitation by URL gets an error that names the missing
// capability.
func TestURLRequiredOfAClientWithoutURLs(t *testing.T) {
	t.Parallel()
	for _, caps := range []string{`{}`, elicits, `{"elicitation":{"form":{}}}`} {
		h := build(t, []Server{gated(t, web).server()})
		m := h.modern("/mcp/quiz", "uid:1000")
		m.caps = caps
		end := m.call("tools/call", `{"name":"a"}`)
		equal(t, caps, code(end), "-32021")
		equal(t, caps, field(end, "error", "data"), `{"requiredCapabilities":{"elicitation":{"url":{}}}}`)
	}
}

// A result of an unknown kind is an error for a legacy client, which would take it
// for complete.
func TestResultOfAKindThatALegacyClientDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.serve = func(q *query) { q.result(`{"resultType":"%s","content":[]}`, q.name()) }
	h := build(t, []Server{s.server()})
	c, m := h.legacy("/mcp/s", "uid:1000", `{}`), h.modern("/mcp/s", "uid:1000")
	equal(t, "complete", code(c.tool("complete", "")), "")
	equal(t, "unknown", code(c.tool("later", "")), "-32603")
	equal(t, "task", code(c.tool("task", "")), "-32603")
	equal(t, "modern", text(m.tool("later", ""), "result", "resultType"), "later")
}

// A public list of a server becomes private, because policy may cut it for other
// callers and a cache must not share it.
func TestListsAreNotPublic(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	s.setList("tools/list", `{"tools":[],"resultType":"complete","ttlMs":7,"cacheScope":"public"}`)
	h := build(t, []Server{s.server()})
	equal(t, "tools", field(h.modern("/mcp/s", "uid:1000").call("tools/list", `{}`), "result"),
		`{"tools":[],"resultType":"complete","ttlMs":7,"cacheScope":"private"}`)
}
