package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// node is a part of a JSON Schema. Maps are written with sorted keys, so the text is always the same.
type node = map[string]any

// Schema returns the JSON Schema (2020-12) of the configuration, for editors. It is made from the structs
// that Load fills. A file that it accepts may have problems that only Load finds, such as an unset
// variable.
func Schema() ([]byte, error) {
	root := section(reflect.TypeFor[Config]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Doorward configuration"
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the schema: %w", err)
	}
	return append(b, '\n'), nil
}

// section describes a struct.
func section(t reflect.Type) node {
	properties, required := node{}, []string{}
	for _, f := range fieldsOf(t) {
		n := schemaOf(f, f.typ)
		n["description"] = f.doc
		properties[f.key] = n
		if f.required {
			required = append(required, f.key)
		}
	}
	n := node{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		n["required"] = required
	}
	if t == serverType {
		addServerRules(n, properties)
	}
	return n
}

// addServerRules adds the rules that apply to servers only.
func addServerRules(n, properties node) {
	n["oneOf"] = []node{{"required": []string{"command"}}, {"required": []string{"url"}}}
	for _, key := range clientOnly {
		properties[key] = node{"description": "Ignored: belongs to a client.", "deprecated": true}
	}
}

// schemaOf describes a value of type t in field f.
func schemaOf(f field, t reflect.Type) node {
	switch {
	case t == valueType:
		return node{"type": "string"}
	case t == durationType:
		return node{"type": []string{"string", "integer"}, "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`, "minimum": 0, "maximum": 0, "default": f.fallback}
	case t == sizeType:
		return node{"type": []string{"string", "integer"}, "pattern": sizeText.String(), "minimum": 0, "default": f.fallback}
	case t == networkType:
		ports := node{"type": "array", "minItems": 1, "items": node{"type": "integer", "minimum": 1, "maximum": 65535}}
		return node{"anyOf": []node{{"enum": []string{"inherit", "none"}}, ports}, "default": f.fallback}
	case t.Kind() == reflect.Pointer:
		return section(t.Elem())
	case t.Kind() == reflect.Struct:
		n := section(t)
		n["type"] = []string{"object", "null"}
		return n
	case t.Kind() == reflect.Map:
		return mapSchema(f, t)
	case t.Kind() == reflect.Slice:
		return listSchema(f, t)
	}
	return scalarSchema(f, t)
}

// mapSchema describes a mapping of names to values.
func mapSchema(f field, t reflect.Type) node {
	n := node{"type": []string{"object", "null"}, "additionalProperties": schemaOf(f, t.Elem())}
	switch t.Elem() {
	case reflect.PointerTo(launcherType):
		n["propertyNames"] = node{"pattern": launcherName.String()}
	case reflect.PointerTo(serverType):
		n["propertyNames"] = node{"pattern": serverName.String(), "not": node{"anyOf": []node{{"pattern": "__"}, {"enum": builtin}}}}
	}
	return n
}

// listSchema describes a list. Its default and enum apply to the items.
func listSchema(f field, t reflect.Type) node {
	item := f
	item.fallback = ""
	n := node{"type": "array", "items": schemaOf(item, t.Elem())}
	switch {
	case f.fallback != "":
		n["default"] = strings.Split(f.fallback, ",")
	case t.Elem() == reflect.TypeFor[Listener]():
		n["items"].(node)["type"] = "object"
		n["default"] = []node{{"addr": DefaultAddr}}
	}
	return n
}

// scalarSchema describes text, truth values and numbers.
func scalarSchema(f field, t reflect.Type) node {
	n := node{}
	switch t.Kind() {
	case reflect.String:
		n["type"] = "string"
		if f.enum != nil {
			n["enum"] = f.enum
		}
		if f.fallback != "" {
			n["default"] = f.fallback
		}
	case reflect.Bool:
		n["type"], n["default"] = "boolean", f.fallback == "true"
	default:
		n["type"] = "integer"
		for name, text := range map[string]string{"minimum": f.min, "maximum": f.max, "default": f.fallback} {
			n[name], _ = strconv.ParseInt(text, 10, 64)
		}
	}
	return n
}
