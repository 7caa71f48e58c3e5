package era

import (
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/trust/wire"
)

// LegacyMeta removes the members of _meta that a legacy server does not know and keeps the
// rest, such as trace context and vendor keys.
var LegacyMeta = []rawjson.Edit{{Key: wire.MetaVersion}, {Key: wire.MetaCapabilities}, {Key: wire.MetaClientInfo}, {Key: wire.MetaLogLevel}}

// Legacy removes what only the modern era has: resultType, caching hints, and structured
// output that is no object.
func Legacy(method string, result []byte) []byte {
	edits := []rawjson.Edit{{Key: "resultType"}}
	if hasHints(method) {
		edits = append(edits, rawjson.Edit{Key: "ttlMs"}, rawjson.Edit{Key: "cacheScope"})
	}
	switch method {
	case "tools/call":
		if out := rawjson.Get(result, "structuredContent"); len(out) > 0 && out[0] != '{' {
			edits = append(edits, rawjson.Edit{Key: "structuredContent"})
		}
	case "tools/list":
		edits = append(edits, rawjson.Edit{Key: "tools", Value: listing.LegacyTools(rawjson.Get(result, "tools"))})
	}
	return rawjson.Set(result, edits...)
}

// hasHints lists the methods whose results carry caching hints (Caching).
func hasHints(method string) bool { return listing.Is(method) || method == "resources/read" }

// Modern adds the members that a modern client requires and the server left out: resultType,
// and the most careful values of the caching hints (Caching).
func Modern(method string, result []byte) []byte {
	var edits []rawjson.Edit
	if rawjson.Get(result, "resultType") == nil {
		edits = append(edits, rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)})
	}
	if hasHints(method) {
		if rawjson.Get(result, "ttlMs") == nil {
			edits = append(edits, rawjson.Edit{Key: "ttlMs", Value: []byte("0")})
		}
		if rawjson.Get(result, "cacheScope") == nil {
			edits = append(edits, rawjson.Edit{Key: "cacheScope", Value: []byte(`"private"`)})
		}
	}
	if edits == nil || len(result) == 0 || result[0] != '{' {
		return result
	}
	return rawjson.Set(result, edits...)
}

// Error replaces a code of one era that the other forbids.
func Error(client, server front.Era, e *wire.Error) *wire.Error {
	if client == front.Modern && server == front.Legacy && e.Code == -32002 {
		return &wire.Error{Code: front.CodeInvalidParams, Message: e.Message, Data: e.Data}
	}
	return e
}
