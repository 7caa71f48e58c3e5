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

// level is the part of a message that an object is. At every level but levelNone, keys
// are read by policy, by the relay or by the other side's decoder, which may ignore case
// (encoding/json does, by Unicode folding). Keys that are equal under folding, case
// variants of known keys, and control characters are therefore refused there (CVE-2026-27896).
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

// field is the number of a known key of a level, from one, in the order of its
// vocabulary. The constants are the members that Parse reads.
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

// Fields of other levels whose values have a level of their own.
const (
	metaField      field = 1 // in params and in result
	argumentsField field = 2 // in params
)

// maxWords is the most keys of a vocabulary.
const maxWords = 63

// vocabulary holds the known keys of a level, at most maxWords, each shorter than 64 bytes.
// Bit n of lengths is set when a key has n bytes, so that most unknown keys need no search.
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

// vocabularies holds, for each level, the keys that Doorward reads or writes there.
// The arguments of a tool have none.
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

// levels holds the level of the value of each member; levelNone where it has none of its own.
var levels = [levelCount][maxWords + 1]level{
	levelEnvelope: {fieldParams: levelParams, fieldResult: levelResult, fieldError: levelError},
	levelParams:   {metaField: levelMeta, argumentsField: levelArguments},
	levelResult:   {metaField: levelMeta},
}

// child returns the level of the value of member f of an object at level lv.
func (lv level) child(f field) level { return levels[lv][f] }

// note records the position of a member of the envelope or of its error.
func (s *scanner) note(lv level, f field, at Span) {
	switch lv {
	case levelEnvelope:
		s.found[f] = at
	case levelError:
		s.found[fieldError+f] = at
	}
}

// find returns the field of a key. variant reports that the key is not known, but equals
// a known key under case folding.
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
