package relay

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/trust/wire"
)

const (
	annotation  = "x-mcp-header"
	paramPrefix = "Mcp-Param-"
)

// paramHeader is one tool parameter that a header repeats
// (Streamable HTTP, "Schema Extension").
type paramHeader struct {
	key  string   // canonical header key, Mcp-Param-X
	path []string // members of arguments from the root
	kind string   // string, integer or boolean
}

// headersOf reads the annotations of one tool: on string, integer and boolean
// properties that are reached through `properties` alone, each a token,
// unique without regard to case.
func headersOf(tool []byte) toolHeaders {
	schema := wire.Get(tool, "inputSchema")
	if !bytes.Contains(schema, []byte(annotation)) {
		return toolHeaders{}
	}
	w := headerWalk{seen: make(map[string]bool)}
	w.schema(schema, nil, true)
	return toolHeaders{params: w.out, broken: w.broken}
}

type headerWalk struct {
	out    []paramHeader
	seen   map[string]bool
	broken bool
}

// schema walks one schema. plain says that it is reached through `properties`
// alone; path is nil at the root.
func (w *headerWalk) schema(schema []byte, path []string, plain bool) {
	for key, value := range wire.Members(schema) {
		switch key {
		case annotation:
			w.add(value, schema, path, plain)
		case "properties":
			w.named(value, path, plain)
		case "$defs", "definitions", "patternProperties", "dependentSchemas":
			w.named(value, path, false)
		case "const", "enum", "default", "examples": // data, not schemas
		default:
			w.other(value, path)
		}
	}
}

// named walks schemas by name.
func (w *headerWalk) named(schemas []byte, path []string, plain bool) {
	for name, s := range wire.Members(schemas) {
		w.schema(s, append(append([]string(nil), path...), name), plain)
	}
}

// other walks whatever schemas stand under another keyword.
func (w *headerWalk) other(value []byte, path []string) {
	w.schema(value, path, false)
	for s := range wire.Elements(value) {
		w.schema(s, path, false)
	}
}

func (w *headerWalk) add(raw, prop []byte, path []string, plain bool) {
	name, isText := wire.Text(raw)
	kind, _ := wire.GetString(prop, "type")
	key := http.CanonicalHeaderKey(paramPrefix + name)
	switch {
	case !plain, path == nil, !isText, !isToken(name), w.seen[key]:
		w.broken = true
		return
	case kind != "string" && kind != "integer" && kind != "boolean":
		w.broken = true
		return
	}
	w.seen[key] = true
	w.out = append(w.out, paramHeader{key: key, path: path, kind: kind})
}

// isToken is RFC 9110's token.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
