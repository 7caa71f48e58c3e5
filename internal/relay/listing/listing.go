// Package listing knows the list methods of the protocol, and makes the entries of the
// aggregate's lists.
//
// Invariant: an entry is shown only to callers that policy lets use it.
package listing

import (
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Kind describes a list method: the member of its result that holds the entries, the member
// that names an entry, the action of using an entry, and the notification of a change.
// Unknown names and notifications are empty.
type Kind struct{ Member, Name, Action, Changed string }

// Of returns the kind of a list method that the protocol defines.
func Of(method string) (Kind, bool) {
	switch method {
	case "tools/list":
		return Kind{"tools", "name", "tools/call", protocol.ToolsChanged}, true
	case "prompts/list":
		return Kind{"prompts", "name", "prompts/get", protocol.PromptsChanged}, true
	case "resources/list":
		return Kind{"resources", "uri", "resources/read", protocol.ResourcesChanged}, true
	case "resources/templates/list":
		return Kind{"resourceTemplates", "uriTemplate", "resources/read", protocol.ResourcesChanged}, true
	case "skills/list": // SEP-2640
		return Kind{"skills", "uri", "resources/read", protocol.ResourcesChanged}, true
	}
	return Kind{}, false
}

// Merged is Of for the lists that the aggregate merges, which include tasks and lists that
// Doorward does not know. The result of x/list has its entries in a member x.
func Merged(method string) Kind {
	if kind, ok := Of(method); ok {
		return kind
	}
	of, _ := strings.CutSuffix(method, "/list")
	return Kind{Member: of[strings.LastIndexByte(of, '/')+1:], Action: method}
}

// Is reports whether the protocol defines a list method.
func Is(method string) bool {
	_, ok := Of(method)
	return ok
}

// ListMethods holds the list method of each kind.
var ListMethods = [pin.KindCount]string{
	pin.Tools: "tools/list", pin.Prompts: "prompts/list", pin.Resources: "resources/list", pin.Templates: "resources/templates/list",
	pin.Skills: "skills/list",
}

// PinKind returns the kind of definitions that a method lists.
func PinKind(method string) (pin.Kind, bool) {
	for k, m := range ListMethods {
		if m == method {
			return pin.Kind(k), true
		}
	}
	return 0, false
}

// Cursor returns the cursor in the params of a list; nil: the list is asked for from its start.
// Null counts as absent, although no schema allows it: clients whose languages have optional
// members send it, and servers that read it into one treat it as absent.
func Cursor(params []byte) []byte { return unlessNull(rawjson.Get(params, "cursor")) }

// Next returns the cursor of the page after a result; nil: there is none. Null counts as absent,
// as in Cursor.
func Next(result []byte) []byte { return unlessNull(rawjson.Get(result, "nextCursor")) }

func unlessNull(raw []byte) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// LegacyTools drops output schemas whose root is not an object.
func LegacyTools(tools []byte) []byte {
	out := []byte{'['}
	for tool := range rawjson.Elements(tools) {
		out = append(rawjson.AppendComma(out), legacyTool(tool)...)
	}
	return append(out, ']')
}

func legacyTool(tool []byte) []byte {
	schema := rawjson.Get(tool, "outputSchema")
	if kind, _ := rawjson.GetString(schema, "type"); schema != nil && kind != "object" {
		return rawjson.Set(tool, rawjson.Edit{Key: "outputSchema"})
	}
	return tool
}

// WithoutTasks drops what tools say about calls that become tasks.
func WithoutTasks(tools []byte) []byte {
	return rawjson.InElements(func(tool []byte) []byte {
		return rawjson.InMember(tool, "execution", func(execution []byte) []byte {
			return rawjson.Set(execution, rawjson.Edit{Key: "taskSupport"})
		})
	})(tools)
}
