// Package naming replaces the names in a server's messages by the aggregate's, and the
// reverse in a client's arguments.
//
// Invariant: only members that the protocol defines change; every other byte stays.
package naming

import (
	"bytes"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/wire"
)

// relatedTask is the member of _meta that names the task a message belongs to
// (2025-11-25 Tasks, "Related Task").
const relatedTask = "io.modelcontextprotocol/related-task"

// Server replaces the names in the messages of one server by the aggregate's, so that a
// client can use each of them unchanged: URIs of resources, and the ids of tasks. Texts,
// structured content and members that the protocol does not define keep their bytes.
type Server string

// Result rewrites the result of a request that went to one server.
func (n Server) Result(method string, raw []byte) []byte {
	raw = n.meta(raw)
	switch method {
	case "tools/call", "tasks/result":
		raw = n.toolResult(raw)
	case "prompts/get":
		raw = rawjson.InMember(raw, "messages", rawjson.InElements(n.message))
	case "resources/read":
		raw = rawjson.InMember(raw, "contents", rawjson.InElements(n.resource))
	case "resources/directory/read":
		raw = rawjson.InMember(raw, "resources", rawjson.InElements(n.resource))
	case "skills/get":
		raw = rawjson.InMember(raw, "skill", n.skill)
	case "tasks/get", "tasks/cancel", "tasks/update":
		raw = rawjson.InMember(n.task(raw), "result", func(result []byte) []byte { return n.toolResult(n.meta(result)) })
	}
	return rawjson.InMember(raw, wire.InputRequests, rawjson.InMembers(func(ask []byte) []byte { return rawjson.InMember(ask, "params", n.Question) }))
}

// Failure rewrites the URI that an error is about (2025-11-25 Resources, "Error
// Handling").
func (n Server) Failure(e *wire.Error) *wire.Error {
	data := n.uri(e.Data)
	if rawjson.Same(data, e.Data) {
		return e
	}
	out := &wire.Error{Code: e.Code, Message: e.Message, Data: data}
	if e.Raw != nil {
		out.Raw = rawjson.Set(e.Raw, rawjson.Edit{Key: "data", Value: data})
	}
	return out
}

// toolResult rewrites a CallToolResult apart from its _meta, or the task in its place.
func (n Server) toolResult(raw []byte) []byte {
	raw = rawjson.InMember(raw, "content", rawjson.InElements(n.block))
	raw = rawjson.InMember(raw, "task", n.task)
	if rawjson.IsText(rawjson.Get(raw, "resultType"), "task") {
		raw = n.task(raw)
	}
	return raw
}

// Question rewrites the params of a server's question.
func (n Server) Question(raw []byte) []byte {
	return rawjson.InMember(n.meta(raw), "messages", rawjson.InElements(n.message))
}

func (n Server) message(raw []byte) []byte { return rawjson.InMember(raw, "content", n.content) }

// content rewrites one block or a list of them.
func (n Server) content(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '[' {
		return rawjson.InElements(n.block)(raw)
	}
	return n.block(raw)
}

// block rewrites one content block (2025-11-25 Tools, "Tool Result").
func (n Server) block(raw []byte) []byte {
	raw = n.meta(raw)
	kind, _ := rawjson.GetString(raw, "type")
	switch kind {
	case "resource_link":
		return n.uri(raw)
	case "resource":
		return rawjson.InMember(raw, "resource", n.resource)
	case "tool_result":
		return rawjson.InMember(raw, "content", rawjson.InElements(n.block))
	}
	return raw
}

// Entry rewrites the names in an entry of a list other than the entry's own.
func (n Server) Entry(raw []byte) []byte {
	raw = n.meta(raw)
	return rawjson.InMember(raw, "resources", rawjson.InElements(n.uri))
}

// skill rewrites the entry of a skill (SEP-2640, "Skill Entries").
func (n Server) skill(raw []byte) []byte { return n.uri(n.Entry(raw)) }

func (n Server) resource(raw []byte) []byte { return n.uri(n.meta(raw)) }

func (n Server) uri(raw []byte) []byte { return rawjson.InMember(raw, "uri", n.joined) }

func (n Server) task(raw []byte) []byte { return rawjson.InMember(raw, "taskId", n.joinedTask) }

// meta rewrites the names in _meta: the resource of an app (SEP-1865, in both of its
// spellings) and the task that a message belongs to.
func (n Server) meta(raw []byte) []byte {
	return rawjson.InMember(raw, "_meta", func(meta []byte) []byte {
		meta = rawjson.InMember(meta, "ui", func(ui []byte) []byte { return rawjson.InMember(ui, "resourceUri", n.joined) })
		meta = rawjson.InMember(meta, "ui/resourceUri", n.joined)
		return rawjson.InMember(meta, relatedTask, n.task)
	})
}

func (n Server) joined(raw []byte) []byte {
	if uri, ok := wire.Text(raw); ok && uri != "" {
		return rawjson.AppendQuote(nil, resolve.JoinURI(string(n), uri))
	}
	return raw
}

func (n Server) joinedTask(raw []byte) []byte {
	if id, ok := wire.Text(raw); ok && id != "" {
		return rawjson.AppendQuote(nil, resolve.JoinName(string(n), id))
	}
	return raw
}

// Arguments replaces each string that is an aggregate URI of this server by the server's own
// URI, and nothing else.
func (n Server) Arguments(raw []byte) []byte {
	if !bytes.Contains(raw, []byte("doorward:")) {
		return raw
	}
	switch {
	case raw[0] == '{':
		return rawjson.InMembers(n.Arguments)(raw)
	case raw[0] == '[':
		return rawjson.InElements(n.Arguments)(raw)
	}
	full, _ := wire.Text(raw)
	if server, uri, ok := resolve.SplitURI(full); ok && server == string(n) {
		return rawjson.AppendQuote(nil, uri)
	}
	return raw
}
