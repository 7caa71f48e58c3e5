package onboard

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

const space = " \t\r\n"

// putJSON inserts or replaces one member.
func (d document) putJSON(text []byte, name string, entry object) ([]byte, error) {
	if blank(text) {
		text = []byte("{}\n")
	}
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	s := styleOf(text, v)
	way := append(append([]string{}, d.keys...), name)
	for i, key := range way {
		o, ok := v.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%w: the value that should contain %s is not an object", ErrShape, key)
		}
		m, err := member(o, key)
		if err != nil {
			return nil, err
		}
		rest := nested(way[i+1:], entry)
		if m == nil {
			return apply(text, s.insert(text, v, o, key, rest)...)
		}
		v = m.Value
		if i == len(way)-1 || v.Value.Kind() == 'n' {
			indent := indentAt(text, m.Name.StartOffset)
			return apply(text, splice{v.StartOffset, v.EndOffset, s.json(rest, indent)})
		}
	}
	return nil, fmt.Errorf("%w: %s cannot be added to it", ErrShape, name)
}

// nested wraps a value in objects with one member each.
func nested(keys []string, v any) any {
	for i := len(keys) - 1; i >= 0; i-- {
		v = object{{keys[i], v}}
	}
	return v
}

// member returns a member of an object. Two members of one name are an error, because
// parsers disagree about which one counts.
func member(o *hujson.Object, key string) (found *hujson.ObjectMember, err error) {
	for i := range o.Members {
		m := &o.Members[i]
		if name, ok := m.Name.Value.(hujson.Literal); !ok || name.String() != key {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: it has %s twice", ErrShape, key)
		}
		found = m
	}
	return found, nil
}

// styleOf derives the layout from the first member of the root.
func styleOf(text []byte, root hujson.Value) style {
	s := style{unit: "  ", newline: newlineOf(text)}
	if o, ok := root.Value.(*hujson.Object); ok && len(o.Members) > 0 && ownLine(text, o.Members[0].Name.StartOffset) {
		if indent := indentAt(text, o.Members[0].Name.StartOffset); indent != "" {
			s.unit = indent
		}
	}
	return s
}

// lineStart returns the offset where the line of an offset begins.
func lineStart(text []byte, at int) int { return bytes.LastIndexByte(text[:at], '\n') + 1 }

// indentAt returns the indentation of the line of an offset.
func indentAt(text []byte, at int) string {
	line := text[lineStart(text, at):at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// ownLine reports whether only white space precedes an offset in its line, which is not the
// first.
func ownLine(text []byte, at int) bool {
	start := lineStart(text, at)
	return start > 0 && len(bytes.TrimLeft(text[start:at], " \t")) == 0
}

// insert adds a member at the end of the object o, which is the value of v.
func (s style) insert(text []byte, v hujson.Value, o *hujson.Object, key string, value any) []splice {
	end := v.EndOffset - 1
	tail := len(bytes.TrimRight(o.AfterExtra, space))
	if len(o.Members) == 0 {
		indent := indentAt(text, v.StartOffset)
		line := s.newline + indent + s.unit + quote(key) + ": " + s.json(value, indent+s.unit) + s.newline + indent
		return []splice{{end - len(o.AfterExtra) + tail, end, line}}
	}
	first, last := o.Members[0].Name.StartOffset, o.Members[len(o.Members)-1].Value
	at := end - len(o.AfterExtra) + tail
	line := " " + quote(key) + ": " + flow(value)
	if indent := indentAt(text, first); ownLine(text, first) || bytes.Contains(o.AfterExtra[:tail], []byte("//")) {
		line = s.newline + indent + quote(key) + ": " + s.json(value, indent)
	}
	if last.AfterExtra != nil { // a trailing comma
		return []splice{{at, at, line + ","}}
	}
	return []splice{{last.EndOffset, last.EndOffset, ","}, {at, at, line}}
}

// dropJSON removes one member.
func (d document) dropJSON(text []byte, name string) ([]byte, error) {
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	for _, key := range d.keys {
		o, ok := v.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%w: the value that should contain %s is not an object", ErrShape, key)
		}
		m, err := member(o, key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrShape, err)
		case m == nil:
			return nil, fmt.Errorf("%w: there is no %s", ErrShape, key)
		}
		v = m.Value
	}
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%w: the value with the servers is not an object", ErrShape)
	}
	if _, err := member(o, name); err != nil {
		return nil, err
	}
	return apply(text, removal(text, v, o, name)...)
}

// removal removes a member with one comma, and the line that becomes empty.
func removal(text []byte, v hujson.Value, o *hujson.Object, name string) []splice {
	for i, m := range o.Members {
		if n, ok := m.Name.Value.(hujson.Literal); !ok || n.String() != name {
			continue
		}
		start, end := emptyBefore(text, m.Name.StartOffset), m.Value.EndOffset
		if m.Value.AfterExtra != nil || i < len(o.Members)-1 { // a comma follows
			end += len(m.Value.AfterExtra) + 1
		}
		all := []splice{{start, end, ""}}
		if i > 0 && i == len(o.Members)-1 && m.Value.AfterExtra == nil { // the comma before it must be removed
			before := o.Members[i-1].Value
			comma := before.EndOffset + len(before.AfterExtra)
			return append(all, splice{comma, comma + 1, ""})
		}
		if len(o.Members) == 1 && strings.Trim(string(text[v.StartOffset+1:start])+string(text[end:v.EndOffset-1]), space) == "" {
			return []splice{{v.StartOffset + 1, v.EndOffset - 1, ""}}
		}
		return all
	}
	return nil
}

// emptyBefore skips the indentation and the line end before an offset, backwards.
func emptyBefore(text []byte, at int) int {
	start := at - len(text[:at]) + len(bytes.TrimRight(text[:at], " \t"))
	if start > 0 && text[start-1] == '\n' {
		start--
		if start > 0 && text[start-1] == '\r' {
			start--
		}
		return start
	}
	return start
}
