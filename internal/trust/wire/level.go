package wire

// Levels. Invariant: a key that Doorward reads at a level is in its vocabulary, and
// no case variant of it passes.

import "strings"

// Keys of _meta that carry the modern era's per-request metadata (MCP
// Overview, "_meta").
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaClientInfo   = "io.modelcontextprotocol/clientInfo"
	MetaLogLevel     = "io.modelcontextprotocol/logLevel"
	MetaServerInfo   = "io.modelcontextprotocol/serverInfo"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// level says which part of a message an object is. At every level but
// levelNone keys are read by policy, by the relay or by the other side's
// decoder, which may ignore case (encoding/json does, by Unicode folding); so
// there keys that meet under folding, case variants of the keys that matter,
// and control characters are refused (CVE-2026-27896).
type level uint8

const (
	levelNone level = iota
	levelBatch
	levelEnvelope
	levelParams
	levelMeta
	levelArguments
	levelResult
	levelError
	levelCount
)

// field numbers the known keys of a level from one, in the order of its
// vocabulary. The names are those of the members that Parse takes.
type field uint8

const (
	fieldNone field = iota
	fieldJSONRPC
	fieldID
	fieldMethod
	fieldParams
	fieldResult
	fieldError
	fieldCode // of the error object, like the next two
	fieldMessage
	fieldData
	fieldCount
)

// Fields of other levels that lead to a level of their own.
const (
	metaField      field = 1 // in params and in result
	argumentsField field = 2 // in params
)

// vocabulary is the known keys of a level, at most 63. lengths has bit n set
// when a key of n bytes is among them: it spares most strange keys the search.
type vocabulary struct {
	keys    []string
	lengths uint64
}

func words(keys ...string) vocabulary {
	v := vocabulary{keys: keys}
	for _, k := range keys {
		v.lengths |= 1 << len(k)
	}
	return v
}

// vocabularies holds, for each level, the keys that Doorward itself reads or
// writes there. The tool's own arguments have none.
var vocabularies = [levelCount]vocabulary{
	levelEnvelope: words("jsonrpc", "id", "method", "params", "result", "error"),
	levelParams: words("_meta", "arguments", "name", "uri", "cursor", "protocolVersion", "capabilities",
		"clientInfo", "requestState", "inputResponses", "taskId", "task", "requestId", "progressToken",
		"progress", "total", "level", "logger", "data", "ref", "argument", "context", "notifications",
		"reason", "message", "messages", "mode", "url", "elicitationId", "requestedSchema"),
	levelMeta: words("progressToken", MetaVersion, MetaCapabilities, MetaClientInfo, MetaLogLevel,
		MetaServerInfo, MetaSubscription, "io.modelcontextprotocol/related-task"),
	levelResult: words("_meta", "resultType", "content", "structuredContent", "isError", "tools", "resources",
		"resourceTemplates", "prompts", "messages", "contents", "completion", "nextCursor", "protocolVersion",
		"supportedVersions", "capabilities", "serverInfo", "instructions", "ttlMs", "cacheScope",
		"inputRequests", "inputResponses", "requestState", "task", "tasks", "taskId", "roots", "action"),
	levelError: words("code", "message", "data"),
}

// child is the level of the value of member f of an object at level lv.
func (lv level) child(f field) level {
	switch {
	case f == fieldNone:
	case lv == levelEnvelope && f == fieldParams:
		return levelParams
	case lv == levelEnvelope && f == fieldResult:
		return levelResult
	case lv == levelEnvelope && f == fieldError:
		return levelError
	case (lv == levelParams || lv == levelResult) && f == metaField:
		return levelMeta
	case lv == levelParams && f == argumentsField:
		return levelArguments
	}
	return levelNone
}

// note keeps where the members are that make the message.
func (s *scanner) note(lv level, f field, at Span) {
	switch lv {
	case levelEnvelope:
		s.found[f] = at
	case levelError:
		s.found[fieldError+f] = at
	}
}

// find returns the field of a key; variant reports that it is none, but would
// be one for a reader that folds case.
func (v *vocabulary) find(text []byte, wide bool) (f field, variant bool) {
	if n := len(text); !wide && (n >= 64 || v.lengths>>n&1 == 0) {
		return fieldNone, false
	}
	for i, k := range v.keys {
		if string(text) == k {
			return field(i + 1), false
		}
	}
	for _, k := range v.keys {
		if (wide || len(k) == len(text)) && strings.EqualFold(k, string(text)) {
			return fieldNone, true
		}
	}
	return fieldNone, false
}
