package onboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// object is a value with named members in order. The values are string, bool, int, []string
// and object.
type object []pair

type pair struct {
	key   string
	value any
}

// style is the layout of a text.
type style struct {
	unit    string // one step of indentation
	newline string
}

// newlineOf returns the line end that a text uses.
func newlineOf(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// quote returns a string literal that is valid in JSON, TOML and YAML.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	text := strings.TrimSuffix(b.String(), "\n")
	return strings.ReplaceAll(text, "\x7f", `\u007f`)
}

// flow returns a value on one line, as JSON, which is also valid YAML.
func flow(v any) string {
	var parts []string
	switch v := v.(type) {
	case object:
		for _, p := range v {
			parts = append(parts, quote(p.key)+": "+flow(p.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []string:
		for _, s := range v {
			parts = append(parts, quote(s))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return quote(v)
	}
	return fmt.Sprint(v)
}

// json returns a value for a line with the indentation indent.
func (s style) json(v any, indent string) string {
	o, ok := v.(object)
	if !ok || len(o) == 0 {
		return flow(v)
	}
	var b strings.Builder
	b.WriteString("{")
	for i, p := range o {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(s.newline + indent + s.unit + quote(p.key) + ": " + s.json(p.value, indent+s.unit))
	}
	b.WriteString(s.newline + indent + "}")
	return b.String()
}

// yaml returns the lines of an object.
func (s style) yaml(o object, indent string) string {
	var b strings.Builder
	for _, p := range o {
		b.WriteString(indent + plainScalar(p.key) + ":")
		if below, ok := p.value.(object); ok && len(below) > 0 {
			b.WriteString(s.newline + s.yaml(below, indent+s.unit))
			continue
		}
		b.WriteString(" " + yamlValue(p.value) + s.newline)
	}
	return b.String()
}

func yamlValue(v any) string {
	switch v := v.(type) {
	case string:
		return plainScalar(v)
	case []string:
		var parts []string
		for _, s := range v {
			parts = append(parts, plainScalar(s))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return flow(v)
}

// plainScalar returns a string for YAML, without quotes if it can only be read as a string.
func plainScalar(s string) string {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '/'
		inside := c >= '0' && c <= '9' || strings.IndexByte("_.-@", c) >= 0
		if !letter && (i == 0 || !inside) {
			return quote(s)
		}
	}
	switch strings.ToLower(s) {
	case "", "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return quote(s)
	}
	return s
}
