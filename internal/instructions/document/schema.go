package document

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/plainyaml"
)

// variable is the compiled schema of one variable.
type variable struct {
	schema   *jsonschema.Resolved
	fallback *string // the default as text; nil: none, so a value is required
}

// content is the kind of value that a keyword of a schema has.
type content uint8

const (
	opaque    content = iota + 1 // left to the schema compiler
	typeNames                    // a type or a list of types
	schema                       // one schema
	schemas                      // a list of schemas
	byName                       // schemas by name
)

// keywords are the known keywords. A schema with another one is refused, because it would
// look as if that was checked. There is no $ref and no $id, so a schema cannot refer to
// another resource or to itself.
var keywords = map[string]content{
	"title": opaque, "description": opaque, "$comment": opaque, "default": opaque, "examples": opaque,
	"enum": opaque, "const": opaque, "pattern": opaque, "minLength": opaque, "maxLength": opaque,
	"multipleOf": opaque, "minimum": opaque, "maximum": opaque, "exclusiveMinimum": opaque, "exclusiveMaximum": opaque,
	"minItems": opaque, "maxItems": opaque, "uniqueItems": opaque, "minContains": opaque, "maxContains": opaque,
	"minProperties": opaque, "maxProperties": opaque, "required": opaque, "dependentRequired": opaque,
	"type": typeNames, "items": schema, "contains": schema, "additionalProperties": schema, "propertyNames": schema,
	"not": schema, "if": schema, "then": schema, "else": schema,
	"allOf": schemas, "anyOf": schemas, "oneOf": schemas, "prefixItems": schemas,
	"properties": byName, "patternProperties": byName, "dependentSchemas": byName,
}

var types = []string{"string", "integer", "number", "boolean", "array", "object", "null"}

// variables parses and compiles all variables.
func (p *parser) variables(n *yaml.Node, d *Document) {
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, "variables must be a mapping of names to schemas, such as project: {type: string}")
		return
	}
	if len(n.Content)/2 > maxVariables {
		p.fail(n.Line, "there are more than %d variables", maxVariables)
		return
	}
	for k, v := range plainyaml.Pairs(n) {
		if !variableName.MatchString(k.Value) {
			p.fail(k.Line, "the name of a variable is 1 to 63 characters of A-Z, a-z, 0-9, underscore and hyphen, and begins with a letter")
			continue
		}
		if d.Variables == nil {
			d.Variables, d.compiled = make(map[string]json.RawMessage), make(map[string]*variable)
		}
		d.Variables[k.Value] = json.RawMessage("{}") // so that its placeholders are no further problem
		if raw, ok := p.json(nil, v); ok && p.schema(v) {
			d.Variables[k.Value] = raw
			d.compiled[k.Value] = p.compile(k, raw)
		}
	}
}

// schema checks the keywords of a schema and of the schemas in it.
func (p *parser) schema(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, "this must be a schema, such as {type: string}")
		return false
	}
	ok := true
	for k, v := range plainyaml.Pairs(n) {
		switch keywords[k.Value] {
		case opaque:
		case typeNames:
			ok = p.types(v) && ok
		case schema:
			ok = (v.Tag == "!!bool" || p.schema(v)) && ok
		case schemas:
			for _, s := range v.Content {
				ok = p.schema(s) && ok
			}
		case byName:
			for _, s := range plainyaml.Pairs(v) {
				ok = p.schema(s) && ok
			}
		default:
			p.fail(k.Line, "%q is not a keyword of JSON Schema that is supported here", plaintext.Clip(k.Value, maxShown))
			ok = false
		}
	}
	return ok
}

func (p *parser) types(n *yaml.Node) bool {
	all := n.Content
	if n.Kind == yaml.ScalarNode {
		all = []*yaml.Node{n}
	}
	for _, t := range all {
		if !slices.Contains(types, t.Value) {
			p.fail(t.Line, "%q is not a type; there are %s", plaintext.Clip(t.Value, maxShown), strings.Join(types, ", "))
			return false
		}
	}
	return true
}

// compile compiles the schema, and checks its default against it.
func (p *parser) compile(k *yaml.Node, raw []byte) *variable {
	var s jsonschema.Schema
	if json.Unmarshal(raw, &s) != nil {
		p.fail(k.Line, "the schema of %s does not compile: a keyword has a value of the wrong type", k.Value)
		return nil
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		p.fail(k.Line, "the schema of %s does not compile: %s", k.Value, plaintext.Clip(err.Error(), maxShown))
		return nil
	}
	v := &variable{schema: resolved}
	if s.Default == nil {
		return v
	}
	if !v.accepts(s.Default) {
		p.fail(k.Line, "the default of %s does not fit its own schema", k.Value)
	}
	text := textOf(s.Default)
	v.fallback = &text
	return v
}

// accepts reports whether a raw JSON value fits the schema.
func (v *variable) accepts(raw []byte) bool {
	var value any
	return json.Unmarshal(raw, &value) == nil && v.schema.Validate(value) == nil
}

var (
	jsonInteger = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	jsonNumber  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

// json appends the JSON of a node.
func (p *parser) json(dst []byte, n *yaml.Node) ([]byte, bool) {
	switch n.Kind {
	case yaml.MappingNode:
		dst = append(dst, '{')
		for k, v := range plainyaml.Pairs(n) {
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			name, _ := json.Marshal(k.Value)
			var ok bool
			if dst, ok = p.json(append(append(dst, name...), ':'), v); !ok {
				return nil, false
			}
		}
		return append(dst, '}'), true
	case yaml.SequenceNode:
		dst = append(dst, '[')
		for i, item := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			var ok bool
			if dst, ok = p.json(dst, item); !ok {
				return nil, false
			}
		}
		return append(dst, ']'), true
	}
	return p.jsonScalar(dst, n)
}

// jsonScalar appends a scalar. It refuses numbers that readers read differently.
func (p *parser) jsonScalar(dst []byte, n *yaml.Node) ([]byte, bool) {
	switch {
	case n.Tag == "!!str":
		text, err := json.Marshal(n.Value)
		return append(dst, text...), err == nil
	case n.Tag == "!!int" && jsonInteger.MatchString(n.Value), n.Tag == "!!float" && jsonNumber.MatchString(n.Value):
		return append(dst, n.Value...), true
	case n.Tag == "!!bool":
		return append(dst, strings.ToLower(n.Value)...), true
	case n.Tag == "!!null":
		return append(dst, "null"...), true
	}
	p.fail(n.Line, "different parsers read %q differently; write plain digits, or put it in quotes", plaintext.Clip(n.Value, maxShown))
	return nil, false
}
