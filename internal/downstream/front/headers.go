package front

import (
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
)

// isJSON accepts exactly one Content-Type, application/json, with the charset UTF-8 or none.
func isJSON(v []string) bool {
	if len(v) != 1 {
		return false
	}
	if v[0] == "application/json" {
		return true
	}
	kind, params, _ := strings.Cut(v[0], ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return false
	}
	params = strings.ToLower(strings.TrimSpace(params))
	return params == "" || strings.Trim(strings.TrimPrefix(params, "charset="), `"`) == "utf-8"
}

// accepts parses the Accept headers: no header counts as */*, and a quality of zero excludes
// a type (RFC 9110, 12.5.1). streams reports that the client named text/event-stream first:
// it prefers a stream even for a single answer.
func accepts(v []string) (json, sse, streams bool) {
	if len(v) == 0 {
		return true, true, false
	}
	for _, line := range v {
		for line != "" {
			var item string
			item, line, _ = strings.Cut(line, ",")
			kind, params, _ := strings.Cut(item, ";")
			if refusedByQuality(params) {
				continue
			}
			switch kind = strings.TrimSpace(kind); {
			case kind == "*/*":
				json, sse = true, true
			case strings.EqualFold(kind, "application/json"), strings.EqualFold(kind, "application/*"):
				json = true
			case strings.EqualFold(kind, "text/event-stream"), strings.EqualFold(kind, "text/*"):
				streams = streams || !json
				sse = true
			}
		}
	}
	return json, sse, streams
}

func refusedByQuality(params string) bool {
	for params != "" {
		var p string
		p, params, _ = strings.Cut(params, ";")
		p = strings.ToLower(strings.ReplaceAll(p, " ", ""))
		if q, ok := strings.CutPrefix(p, "q="); ok && strings.Trim(q, "0.") == "" {
			return true
		}
	}
	return false
}

// once reports that no header that affects the decision appears twice: another parser might
// use the other value.
func once(h http.Header) bool {
	for k, v := range h {
		if len(v) > 1 && decides(k) {
			return false
		}
	}
	return true
}

// decides reports whether a header affects the decision about a request.
func decides(k string) bool {
	switch k {
	case "Authorization", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id", "Last-Event-Id", protocol.HeaderSession:
		return true
	}
	return strings.HasPrefix(k, "Mcp-Param-")
}

// namespace returns the client's label of its project; empty: none, or not well-formed. It is
// claimed.
func namespace(h http.Header) string {
	v := h[protocol.HeaderNamespace]
	if len(v) != 1 || !protocol.ValidNamespace(v[0]) {
		return ""
	}
	return v[0]
}

// former returns the digest of the session that the client's session replaces; empty: none, or
// not well-formed. It is claimed.
func former(h http.Header) string {
	v := h[protocol.HeaderFormer]
	if len(v) != 1 || !protocol.ValidSessionDigest(v[0]) {
		return ""
	}
	return v[0]
}

// firstByte returns the first byte that is not white space, or 0.
func firstByte(b []byte) byte {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}
