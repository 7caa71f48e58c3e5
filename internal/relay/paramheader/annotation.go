// Package paramheader reads which parameters of a server's tools are repeated in Mcp-Param
// headers, and compares them with the headers (Streamable HTTP, "Schema Extension").
//
// Invariant: a header that differs from the body never passes for an equal one.
package paramheader

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

const (
	annotation = "x-mcp-header" // member of a property that names its header
	Prefix     = "Mcp-Param-"   // beginning of the name of such a header
)

// Param is one tool parameter that a header repeats (Streamable HTTP, "Schema Extension").
type Param struct {
	Key  string   // canonical header key, Mcp-Param-X
	Path []string // members of arguments from the root
	kind string   // string, integer or boolean
}

// Of reads the annotations of one tool. They are valid on string, integer and boolean
// properties that are reached through `properties` alone; each is a token, unique without
// regard to case.
func Of(tool []byte) Tool {
	schema := rawjson.Get(tool, "inputSchema")
	if !bytes.Contains(schema, []byte(annotation)) {
		return Tool{}
	}
	w := headerWalk{seen: make(map[string]bool)}
	w.schema(schema, nil, true)
	return Tool{Params: w.out, Broken: w.broken}
}

type headerWalk struct {
	out    []Param
	seen   map[string]bool
	broken bool
}

// schema walks one schema. plain: it is reached through `properties` alone. path is nil at
// the root.
func (w *headerWalk) schema(schema []byte, path []string, plain bool) {
	for key, value := range rawjson.Members(schema) {
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
	for name, s := range rawjson.Members(schemas) {
		w.schema(s, append(append([]string(nil), path...), name), plain)
	}
}

// other walks the schemas under another keyword.
func (w *headerWalk) other(value []byte, path []string) {
	w.schema(value, path, false)
	for s := range rawjson.Elements(value) {
		w.schema(s, path, false)
	}
}

func (w *headerWalk) add(raw, prop []byte, path []string, plain bool) {
	name, isText := wire.Text(raw)
	kind, _ := rawjson.GetString(prop, "type")
	key := http.CanonicalHeaderKey(Prefix + name)
	switch {
	case !plain, path == nil, !isText, !IsToken(name), w.seen[key]:
		w.broken = true
		return
	case kind != "string" && kind != "integer" && kind != "boolean":
		w.broken = true
		return
	}
	w.seen[key] = true
	w.out = append(w.out, Param{Key: key, Path: path, kind: kind})
}

// IsToken reports whether s is a token of RFC 9110.
func IsToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
