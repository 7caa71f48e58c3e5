package onboard

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// sheet is a YAML text with its nodes.
type sheet struct {
	text  []byte
	lines []int // offset of each line; line 1 is the first
	root  *yaml.Node
	style style
}

func parseSheet(text []byte) (*sheet, error) {
	s := &sheet{text: text, lines: []int{0}, style: style{unit: "  ", newline: newlineOf(text)}}
	if oddLines(text) {
		return nil, fmt.Errorf("%w: it has line ends other than LF and CRLF", ErrShape)
	}
	for i, c := range text {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	if doc.Kind == yaml.DocumentNode {
		s.root = doc.Content[0]
	}
	if s.root != nil && s.root.Tag == "!!null" {
		s.root = nil
	}
	if s.root != nil && s.root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%w: it is not a mapping", ErrShape)
	}
	if s.root != nil && s.root.Anchor != "" {
		return nil, fmt.Errorf("%w: it has an anchor at its root", ErrShape)
	}
	return s, nil
}

// oddLines reports whether a text contains another character that ends a line in YAML.
func oddLines(text []byte) bool {
	rest := bytes.ReplaceAll(text, []byte("\r\n"), nil)
	return bytes.ContainsAny(rest, "\r\u0085\u2028\u2029")
}

func inFlow(n *yaml.Node) bool { return n.Style&yaml.FlowStyle != 0 }

// offset returns the offset of a node.
func (s *sheet) offset(n *yaml.Node) int {
	at := s.line(n.Line)
	for i := 1; i < n.Column && at < len(s.text); i++ {
		_, size := utf8.DecodeRune(s.text[at:])
		at += size
	}
	return at
}

// line returns the offset of a line; for a line after the last, the end of the text.
func (s *sheet) line(n int) int {
	if n > len(s.lines) {
		return len(s.text)
	}
	return s.lines[n-1]
}

// putYAML inserts or replaces one entry of a map or a list below the root.
func (d document) putYAML(text []byte, name string, entry object) ([]byte, error) {
	s, err := parseSheet(text)
	if err != nil {
		return nil, err
	}
	if s.root != nil && inFlow(s.root) {
		return d.putFlow(text, name, entry)
	}
	if s.root == nil {
		return s.atEnd(d.whole(name, entry, s.style))
	}
	if old, err := d.dropEntry(s, name); err == nil { // replaced at its place if that is simple
		return d.putYAML(old, name, entry)
	}
	i := indexOf(s.root, d.keys[0])
	if i < 0 {
		return s.atEnd(d.whole(name, entry, s.style))
	}
	return d.inside(s, i, name, entry)
}

var errBrackets = fmt.Errorf("%w: the whole file is in flow style (brackets)", ErrShape)

// putFlow edits a text whose root is in flow style, as JSON.
func (d document) putFlow(text []byte, name string, entry object) ([]byte, error) {
	if d.list {
		return nil, errBrackets
	}
	return d.putJSON(text, name, entry)
}

// whole returns the key of the servers with one entry.
func (d document) whole(name string, entry object, s style) string {
	return plainScalar(d.keys[0]) + ":" + s.newline + d.lines(name, entry, s, s.unit)
}

// lines returns the lines of an entry with an indentation.
func (d document) lines(name string, entry object, s style, indent string) string {
	if !d.list {
		return s.yaml(object{{name, entry}}, indent)
	}
	return indent + "- " + strings.TrimPrefix(s.yaml(entry, indent+"  "), indent+"  ")
}

// atEnd adds lines at the end of the document, before a mark that ends it.
func (s *sheet) atEnd(lines string) ([]byte, error) {
	at := s.end()
	if at > 0 && s.text[at-1] != '\n' {
		lines = s.style.newline + lines
	}
	return apply(s.text, splice{at, at, lines})
}

// end returns the offset where the document ends.
func (s *sheet) end() int {
	for n := len(s.lines); n > 0; n-- {
		if rest := s.text[s.line(n):]; bytes.HasPrefix(rest, []byte("...")) {
			return s.line(n)
		}
	}
	return len(s.text)
}

// indexOf returns the index of a key in a map's content; -1: none.
func indexOf(m *yaml.Node, key string) int {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// inside adds an entry to existing servers.
func (d document) inside(s *sheet, i int, name string, entry object) ([]byte, error) {
	key, v := s.root.Content[i], s.root.Content[i+1]
	switch {
	case v.Tag == "!!null" || inFlow(v) && len(v.Content) == 0:
		return d.fill(s, key, v, name, entry)
	case inFlow(v):
		return d.append(s, v, name, entry)
	case v.Kind != yaml.MappingNode && v.Kind != yaml.SequenceNode:
		return nil, fmt.Errorf("%w: %s is neither a mapping nor a list", ErrShape, d.keys[0])
	}
	indent := v.Column - 1
	at := s.below(s.root, i, indent)
	lines := d.lines(name, entry, s.style, strings.Repeat(" ", indent))
	if at > 0 && s.text[at-1] != '\n' {
		lines = s.style.newline + lines
	}
	return apply(s.text, splice{at, at, lines})
}

// fill gives a key without a value, or with an empty one, its first entry.
func (d document) fill(s *sheet, key, v *yaml.Node, name string, entry object) ([]byte, error) {
	start := s.colon(key)
	end := start
	if inFlow(v) {
		close, _, err := s.brackets(s.offset(v))
		if err != nil {
			return nil, err
		}
		end = close + 1
	} else if v.Value != "" {
		end = s.offset(v) + len(v.Value)
	}
	line := end + bytes.IndexByte(append(s.text[end:len(s.text):len(s.text)], '\n'), '\n')
	next, lines := min(line+1, len(s.text)), d.lines(name, entry, s.style, s.style.unit)
	if next == line {
		lines = s.style.newline + lines
	}
	return apply(s.text, splice{start, end, ""}, splice{next, next, lines})
}

// colon returns the offset after the colon of a key.
func (s *sheet) colon(key *yaml.Node) int {
	at := s.offset(key) + len(key.Value)
	if key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		at += 2
	}
	return at + bytes.IndexByte(s.text[at:], ':') + 1
}

// append adds an entry to a map or a list in brackets.
func (d document) append(s *sheet, v *yaml.Node, name string, entry object) ([]byte, error) {
	close, commas, err := s.brackets(s.offset(v))
	if err != nil {
		return nil, err
	}
	text := flow(entry)
	if !d.list {
		text = quote(name) + ": " + text
	}
	at := len(bytes.TrimRight(s.text[:close], space))
	if n := len(commas); n == 0 || commas[n-1] != at-1 {
		text = ", " + text
	} else {
		text = " " + text
	}
	return apply(s.text, splice{at, at, text})
}

// below returns the offset where the value of the i-th key of m ends: before the next key,
// and before the comments and blank lines that belong to it. indent is the indentation of
// the value.
func (s *sheet) below(m *yaml.Node, i, indent int) int {
	end := s.end()
	if i+2 < len(m.Content) {
		end = s.line(m.Content[i+2].Line)
	}
	start := s.offset(m.Content[i+1])
	for end > start {
		line := lineStart(s.text, end-1)
		words := bytes.TrimLeft(s.text[line:end], " ")
		depth := end - line - len(words)
		if line <= start || !blank(words) && (words[0] != '#' || indent > 0 && depth >= indent) {
			break
		}
		end = line
	}
	return end
}

// brackets returns the offset of the bracket that closes the one at open, and of the commas
// directly inside.
func (s *sheet) brackets(open int) (close int, commas []int, err error) {
	depth := 0
	for i := open; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i, commas, nil
			}
		case c == ',' && depth == 1:
			commas = append(commas, i)
		case c == '"' || c == '\'':
			i = s.quoted(i)
		case c == '#' && strings.IndexByte(space, s.text[i-1]) >= 0:
			i += bytes.IndexByte(append(s.text[i:len(s.text):len(s.text)], '\n'), '\n')
		}
	}
	return 0, nil, fmt.Errorf("%w: a bracket is not closed", ErrShape)
}

// quoted returns the offset of the closing quote of the one at open. Quotes inside a word
// are ordinary characters.
func (s *sheet) quoted(open int) int {
	if before := s.text[open-1]; strings.IndexByte(space+"{[,:", before) < 0 {
		return open
	}
	for i := open + 1; i < len(s.text); i++ {
		switch {
		case s.text[open] == '"' && s.text[i] == '\\':
			i++
		case s.text[i] == s.text[open]:
			return i
		}
	}
	return len(s.text)
}

// dropYAML removes one entry.
func (d document) dropYAML(text []byte, name string) ([]byte, error) {
	s, err := parseSheet(text)
	if err != nil {
		return nil, err
	}
	if s.root == nil || inFlow(s.root) && d.list {
		return nil, errBrackets
	}
	if inFlow(s.root) {
		return d.dropJSON(text, name)
	}
	return d.dropEntry(s, name)
}

// dropEntry removes an entry of a map or a list below the root.
func (d document) dropEntry(s *sheet, name string) ([]byte, error) {
	i := indexOf(s.root, d.keys[0])
	if i < 0 {
		return nil, fmt.Errorf("%w: it has no %s", ErrShape, d.keys[0])
	}
	key, v := s.root.Content[i], s.root.Content[i+1]
	n, count := d.position(v, name)
	if n < 0 {
		return nil, fmt.Errorf("%w: it has no %s", ErrShape, name)
	}
	if inFlow(v) {
		return s.dropFlow(v, n, count)
	}
	indent := v.Column - 1
	end := s.below(s.root, i, indent)
	at := s.itemLine(v, n)
	if n+1 < count {
		end = s.itemEnd(v, n, indent)
	}
	if count > 1 {
		return apply(s.text, splice{at, end, ""})
	}
	empty := map[bool]string{true: " []", false: " {}"}[d.list]
	colon := s.colon(key)
	return apply(s.text, splice{colon, colon, empty}, splice{at, end, ""})
}

// position returns the index of an entry and the number of entries; -1: it is missing.
func (d document) position(v *yaml.Node, name string) (n, count int) {
	if v.Kind == yaml.MappingNode {
		return indexOf(v, name) >> 1, len(v.Content) / 2
	}
	for i, item := range v.Content {
		if item.Kind != yaml.MappingNode {
			continue
		}
		if at := indexOf(item, "name"); at >= 0 && item.Content[at+1].Value == name {
			return i, len(v.Content)
		}
	}
	return -1, len(v.Content)
}

// itemLine returns the offset of the line of the n-th entry.
func (s *sheet) itemLine(v *yaml.Node, n int) int {
	if v.Kind == yaml.MappingNode {
		return s.line(v.Content[2*n].Line)
	}
	at := s.offset(v.Content[n])
	if dash := bytes.LastIndexByte(s.text[:at], '-'); dash >= 0 {
		at = dash
	}
	return lineStart(s.text, at)
}

// itemEnd returns the offset where the n-th entry ends, if another one follows. Comments
// directly above that one belong to it.
func (s *sheet) itemEnd(v *yaml.Node, n, indent int) int {
	start, end := s.itemLine(v, n), s.itemLine(v, n+1)
	for {
		line := lineStart(s.text, end-1)
		words := bytes.TrimLeft(s.text[line:end], " ")
		if line <= start || len(words) == 0 || words[0] != '#' || end-line-len(words) > indent {
			return end
		}
		end = line
	}
}

// dropFlow removes an entry in brackets with one comma.
func (s *sheet) dropFlow(v *yaml.Node, n, count int) ([]byte, error) {
	open := s.offset(v)
	close, commas, err := s.brackets(open)
	if err != nil {
		return nil, err
	}
	start, end := open+1, close
	if n > 0 {
		start = commas[n-1]
	}
	if n < len(commas) {
		end = commas[n]
		if n == 0 {
			end++
		}
	}
	if n == 0 && count > 1 {
		end += len(s.text[end:]) - len(bytes.TrimLeft(s.text[end:], " "))
	}
	return apply(s.text, splice{start, end, ""})
}
