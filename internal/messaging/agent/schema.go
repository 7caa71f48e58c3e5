package agent

import (
	"bytes"
	_ "embed" // schema.jsonc
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

//go:embed schema.jsonc
var schemaText []byte

// schemas are the schemas of one tool: for the check of arguments, for tools/list, and
// for structured answers.
type schemas struct {
	input, listed, output []byte // raw JSON
	// accepts compiles input when it is first needed, because most daemons use few tools.
	accepts  func() (*jsonschema.Resolved, error)
	names    map[string]bool // of the arguments
	mostBody int             // bytes of UTF-8; 0: the tool has no body
}

// loadSchemas reads schema.jsonc. mostBody bounds a body in bytes, and so in characters;
// ttl is the default life of a message.
func loadSchemas(mostBody int, ttl time.Duration) (map[string]schemas, error) {
	text := withoutComments(schemaText)
	if err := wire.ValidateValue(text); err != nil {
		return nil, fmt.Errorf("schema.jsonc: %w", err)
	}
	definitions := rawjson.SetIn(rawjson.Get(text, "definitions"), "body", rawjson.Edit{Key: "maxLength", Value: wire.IntID(int64(mostBody))})
	e := expander{definitions: rawjson.SetIn(definitions, "ttl", rawjson.Edit{Key: "default", Value: wire.IntID(int64(ttl.Seconds()))})}
	out := make(map[string]schemas)
	for tool, raw := range rawjson.Members(rawjson.Get(text, "tools")) {
		s := schemas{input: e.expand(rawjson.Get(raw, "in"), true), output: e.output(rawjson.Get(raw, "out"))}
		s.listed, s.names = listed(s.input), make(map[string]bool)
		for name := range rawjson.Members(rawjson.Get(s.input, "properties")) {
			s.names[name] = true
		}
		if rawjson.GetPath(s.input, "properties", "body") != nil {
			s.mostBody = mostBody
		}
		s.accepts = sync.OnceValues(func() (*jsonschema.Resolved, error) { return resolve(s.input) })
		out[tool] = s
	}
	return out, e.err
}

// withoutComments removes the comment lines.
func withoutComments(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) {
			out = append(out, line...)
		}
	}
	return out
}

func resolve(raw []byte) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	return s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
}

// expander replaces names by their definitions, and adds to every object which properties
// are required or allowed.
type expander struct {
	definitions []byte
	err         error
}

// listed returns an input schema for models: names, types, choices, and the purpose of
// each parameter.
func listed(input []byte) []byte {
	var all []byte
	for name, v := range rawjson.Members(rawjson.Get(input, "properties")) {
		all = append(rawjson.AppendQuote(append(all, ','), name), ':')
		all = append(all, plain(v)...)
	}
	return rawjson.Set([]byte(`{"type":"object"}`), rawjson.Edit{Key: "properties", Value: bracketed('{', all, '}')},
		rawjson.Edit{Key: "required", Value: rawjson.Get(input, "required")})
}

// plain returns a parameter's schema without the parts that only the check needs. The
// members of an object are left out: its description names them.
func plain(raw []byte) []byte {
	var out []byte
	for key, v := range rawjson.Members(raw) {
		switch key {
		case "type", "enum", "description":
		case "items":
			v = plain(v)
		case "anyOf":
			var some []byte
			for e := range rawjson.Elements(v) {
				some = append(append(some, ','), plain(e)...)
			}
			v = bracketed('[', some, ']')
		default:
			continue
		}
		out = append(rawjson.AppendQuote(append(out, ','), key), ':')
		out = append(out, v...)
	}
	if rawjson.Get(raw, "enum") != nil && rawjson.Get(raw, "type") == nil {
		out = append([]byte(`,"type":"string"`), out...)
	}
	return bracketed('{', out, '}')
}

// output returns the schema of structured answers: a result or an error.
func (e *expander) output(raw []byte) []byte {
	out := append([]byte(`{"type":"object","anyOf":[`), e.expand(raw, false)...)
	out = append(append(out, ','), e.expand([]byte(`"@error"`), false)...)
	return append(out, "]}"...)
}

func (e *expander) expand(raw []byte, input bool) []byte {
	switch {
	case len(raw) == 0:
		e.err = fmt.Errorf("schema.jsonc: something is missing")
		return []byte("{}")
	case raw[0] == '"':
		return e.named(raw, input)
	case raw[0] == '[':
		var out []byte
		for v := range rawjson.Elements(raw) {
			out = append(append(out, ','), e.expand(v, input)...)
		}
		return bracketed('[', out, ']')
	case raw[0] == '{' && rawjson.Get(raw, "is") != nil:
		return rawjson.Set(e.expand(rawjson.Get(raw, "is"), input), rawjson.Edit{Key: "description", Value: rawjson.Get(raw, "description")})
	case raw[0] == '{':
		return e.schema(raw, input)
	}
	return raw
}

// named returns the definition that a text names, or the text itself.
func (e *expander) named(raw []byte, input bool) []byte {
	name, _ := wire.Text(raw)
	if name == "" || name[0] != '@' {
		return raw
	}
	def := rawjson.Get(e.definitions, name[1:])
	if def == nil {
		e.err = fmt.Errorf("schema.jsonc: no definition of %s", name)
		return raw
	}
	return e.expand(def, input)
}

// schema expands one schema object.
func (e *expander) schema(raw []byte, input bool) []byte {
	var out []byte
	for key, v := range rawjson.Members(raw) {
		switch key {
		case "optional":
			continue
		case "properties":
			v = e.properties(v, input)
		case "enum", "const", "default", "required", "description":
		default:
			v = e.expand(v, input)
		}
		out = append(rawjson.AppendQuote(append(out, ','), key), ':')
		out = append(out, v...)
	}
	if !input && rawjson.Get(raw, "required") == nil && rawjson.Get(raw, "properties") != nil {
		out = append(append(out, `,"required":`...), required(raw)...)
	}
	isObject := string(rawjson.Get(raw, "type")) == `"object"`
	if input && isObject && rawjson.Get(raw, "additionalProperties") == nil {
		out = append(out, `,"additionalProperties":false`...)
	}
	return bracketed('{', out, '}')
}

func (e *expander) properties(raw []byte, input bool) []byte {
	var out []byte
	for name, v := range rawjson.Members(raw) {
		out = append(rawjson.AppendQuote(append(out, ','), name), ':')
		out = append(out, e.expand(v, input)...)
	}
	return bracketed('{', out, '}')
}

// required returns the properties that are not optional.
func required(raw []byte) []byte {
	var optional []string
	for v := range rawjson.Elements(rawjson.Get(raw, "optional")) {
		name, _ := wire.Text(v)
		optional = append(optional, name)
	}
	var out []byte
	for name := range rawjson.Members(rawjson.Get(raw, "properties")) {
		if !slices.Contains(optional, name) {
			out = rawjson.AppendQuote(append(out, ','), name)
		}
	}
	return bracketed('[', out, ']')
}

// bracketed encloses items, each of which begins with a comma, and removes the first
// comma.
func bracketed(first byte, items []byte, last byte) []byte {
	if len(items) > 0 {
		items = items[1:]
	}
	return append(append([]byte{first}, items...), last)
}
