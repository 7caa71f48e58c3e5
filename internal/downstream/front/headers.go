package front

import (
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
)

// isJSON admits exactly one Content-Type, application/json, whose charset is
// UTF-8 when it names one.
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

// accepts reads the Accept headers: absent counts as */*, a quality of zero
// as a refusal (RFC 9110, 12.5.1). streams says that the client named
// text/event-stream first: it wants one even for a single answer.
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

// once reports that no header which decides anything appears twice: another
// reader might take the other one.
func once(h http.Header) bool {
	for _, k := range [...]string{"Authorization", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id", "Last-Event-Id", protocol.HeaderSession} {
		if len(h[k]) > 1 {
			return false
		}
	}
	for k, v := range h {
		if len(v) > 1 && strings.HasPrefix(k, "Mcp-Param-") {
			return false
		}
	}
	return true
}

// namespace is the label of its project that a client gave, or empty: it is
// well formed, and no more than claimed.
func namespace(h http.Header) string {
	v := h[protocol.HeaderNamespace]
	if len(v) != 1 || !protocol.ValidNamespace(v[0]) {
		return ""
	}
	return v[0]
}

// firstByte is the first byte that is not white space, or 0.
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
