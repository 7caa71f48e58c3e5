package relay

import (
	"bytes"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/wire"
)

// relatedTask is the member of _meta that names the task a message belongs to
// (2025-11-25 Tasks, "Related Task").
const relatedTask = "io.modelcontextprotocol/related-task"

// naming rewrites what a server's message names into the aggregate's names, so that
// a client can use each of them as it stands: URIs of resources, and the ids of
// tasks. Texts, structured content and members that the protocol does not define
// keep their bytes.
type naming struct{ server string }

// result rewrites the result of a request that went to one server.
func (n naming) result(method string, raw []byte) []byte {
	raw = n.meta(raw)
	switch method {
	case "tools/call", "tasks/result":
		raw = n.toolResult(raw)
	case "prompts/get":
		raw = at(raw, "messages", each(n.message))
	case "resources/read":
		raw = at(raw, "contents", each(n.resource))
	case "resources/directory/read":
		raw = at(raw, "resources", each(n.resource))
	case "skills/get":
		raw = at(raw, "skill", n.skill)
	case "tasks/get", "tasks/cancel", "tasks/update":
		raw = at(n.task(raw), "result", n.toolResult)
	}
	return at(raw, wire.InputRequests, members(func(ask []byte) []byte { return at(ask, "params", n.question) }))
}

// failure rewrites the URI that an error is about (2025-11-25 Resources, "Error
// Handling").
func (n naming) failure(e *wire.Error) *wire.Error {
	data := n.uri(e.Data)
	if same(data, e.Data) {
		return e
	}
	out := &wire.Error{Code: e.Code, Message: e.Message, Data: data}
	if e.Raw != nil {
		out.Raw = rawjson.Set(e.Raw, rawjson.Edit{Key: "data", Value: data})
	}
	return out
}

// toolResult rewrites a CallToolResult, or the task that stands for it.
func (n naming) toolResult(raw []byte) []byte {
	raw = at(n.meta(raw), "content", each(n.block))
	raw = at(raw, "task", n.task)
	if isText(wire.Get(raw, "resultType"), "task") {
		raw = n.task(raw)
	}
	return raw
}

// question rewrites the params of a server's question.
func (n naming) question(raw []byte) []byte {
	return at(n.meta(raw), "messages", each(n.message))
}

func (n naming) message(raw []byte) []byte { return at(raw, "content", n.content) }

// content is one block or a list of them.
func (n naming) content(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '[' {
		return each(n.block)(raw)
	}
	return n.block(raw)
}

// block rewrites one content block (2025-11-25 Tools, "Tool Result").
func (n naming) block(raw []byte) []byte {
	raw = n.meta(raw)
	kind, _ := wire.GetString(raw, "type")
	switch kind {
	case "resource_link":
		return n.uri(raw)
	case "resource":
		return at(raw, "resource", n.resource)
	case "tool_result":
		return at(raw, "content", each(n.block))
	}
	return raw
}

// entry rewrites what an entry of a list names beside itself.
func (n naming) entry(raw []byte) []byte {
	raw = n.meta(raw)
	return at(raw, "resources", each(n.uri))
}

// skill rewrites the entry of a skill (SEP-2640, "Skill Entries").
func (n naming) skill(raw []byte) []byte { return n.uri(n.entry(raw)) }

func (n naming) resource(raw []byte) []byte { return n.uri(n.meta(raw)) }

func (n naming) uri(raw []byte) []byte { return at(raw, "uri", n.joined) }

func (n naming) task(raw []byte) []byte { return at(raw, "taskId", n.joinedTask) }

// meta rewrites what _meta names: the resource of an app (SEP-1865, in both of its
// spellings) and the task that a message belongs to.
func (n naming) meta(raw []byte) []byte {
	return at(raw, "_meta", func(meta []byte) []byte {
		meta = at(meta, "ui", func(ui []byte) []byte { return at(ui, "resourceUri", n.joined) })
		meta = at(meta, "ui/resourceUri", n.joined)
		return at(meta, relatedTask, n.task)
	})
}

func (n naming) joined(raw []byte) []byte {
	if uri, ok := wire.Text(raw); ok && uri != "" {
		return rawjson.AppendQuote(nil, resolve.JoinURI(n.server, uri))
	}
	return raw
}

func (n naming) joinedTask(raw []byte) []byte {
	if id, ok := wire.Text(raw); ok && id != "" {
		return rawjson.AppendQuote(nil, resolve.JoinName(n.server, id))
	}
	return raw
}

// arguments gives a server its own URIs back where a client passes one on: a string
// that is a URI of this server on the aggregate, and nothing else.
func (n naming) arguments(raw []byte) []byte {
	if !bytes.Contains(raw, []byte("doorward:")) {
		return raw
	}
	switch {
	case raw[0] == '{':
		return members(n.arguments)(raw)
	case raw[0] == '[':
		return each(n.arguments)(raw)
	}
	full, _ := wire.Text(raw)
	if server, uri, ok := resolve.SplitURI(full); ok && server == n.server {
		return rawjson.AppendQuote(nil, uri)
	}
	return raw
}

// at applies f to one member of an object, if it is there.
func at(raw []byte, key string, f func([]byte) []byte) []byte {
	value := wire.Get(raw, key)
	if value == nil {
		return raw
	}
	if out := f(value); !same(out, value) {
		return rawjson.Set(raw, rawjson.Edit{Key: key, Value: out})
	}
	return raw
}

// each applies f to the elements of an array; anything else stays as it is.
func each(f func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte {
		if len(raw) == 0 || raw[0] != '[' {
			return raw
		}
		out, changed := []byte{'['}, false
		for e := range wire.Elements(raw) {
			with := f(e)
			changed = changed || !same(with, e)
			out = append(comma(out), with...)
		}
		if !changed {
			return raw
		}
		return append(out, ']')
	}
}

// members applies f to the values of an object; anything else stays as it is.
func members(f func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte {
		if len(raw) == 0 || raw[0] != '{' {
			return raw
		}
		var edits []rawjson.Edit
		for key, value := range wire.Members(raw) {
			if out := f(value); !same(out, value) {
				edits = append(edits, rawjson.Edit{Key: key, Value: out})
			}
		}
		return rawjson.Set(raw, edits...)
	}
}
