package document

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// The marks around a value of a caller.
const (
	fenceOpen  = "⟦"
	fenceClose = "⟧"
)

// part is a piece of a body.
type part struct {
	kind partKind
	text string // the text itself, or the name of a variable or a document
	line int
}

// source returns the part as a file has it.
func (p part) source() string {
	switch p.kind {
	case variableOf:
		return "{{" + p.text + "}}"
	case include:
		return "{{> " + p.text + "}}"
	}
	return strings.ReplaceAll(p.text, "{{", `\{{`)
}

type partKind uint8

const (
	literal partKind = iota
	variableOf
	include
)

var placeholder = regexp.MustCompile(`^\{\{(> )?([A-Za-z0-9][A-Za-z0-9._-]{0,62})\}\}`)

// body parses the text after the header; line is where it begins. The rule for {{ holds
// in code blocks too, because one rule is easier to remember.
func (p *parser) body(text string, line int, d *Document) {
	trimmed := strings.TrimLeft(text, "\n")
	d.Body = strings.TrimRight(trimmed, " \t\n")
	if d.Body == "" {
		p.fail(line-1, "there is no text after the header")
		return
	}
	line += len(text) - len(trimmed)
	if last := strings.Count(d.Body, "\n"); strings.HasSuffix(d.Body, "{") || strings.HasSuffix(d.Body, `\`) {
		p.fail(line+last, `a text must not end with { or \: where it is included, the text after it would be read differently`)
	}
	p.visible(d.Body, line)
	b := bodyReader{parser: p, d: d, line: line}
	d.parts = b.parts()
	for _, p := range d.parts {
		if p.kind == include {
			d.includes = append(d.includes, p.text)
		}
	}
	slices.Sort(d.includes)
	d.includes = slices.Compact(d.includes)
}

// bodyReader reads a body once, and counts its lines.
type bodyReader struct {
	*parser
	d       *Document
	at      int // the body has been read up to here
	line    int // the line of at
	literal []byte
	out     []part
}

func (b *bodyReader) parts() []part {
	for {
		i := strings.Index(b.d.Body[b.at:], "{{")
		if i < 0 || len(b.problems) == maxProblems {
			b.take(len(b.d.Body) - b.at)
			b.flush()
			return b.out
		}
		b.take(i)
		if last := len(b.literal) - 1; i > 0 && b.literal[last] == '\\' {
			b.literal = b.literal[:last]
			b.take(2)
			continue
		}
		b.placeholder()
	}
}

// take adds the next n bytes to the literal text.
func (b *bodyReader) take(n int) {
	text := b.d.Body[b.at : b.at+n]
	b.literal = append(b.literal, text...)
	b.line += strings.Count(text, "\n")
	b.at += n
}

func (b *bodyReader) flush() {
	if len(b.literal) > 0 {
		b.out = append(b.out, part{kind: literal, text: string(b.literal)})
		b.literal = b.literal[:0]
	}
}

// placeholder reads a placeholder, which begins with {{.
func (b *bodyReader) placeholder() {
	m := placeholder.FindStringSubmatch(b.d.Body[b.at:])
	if m == nil {
		b.fail(b.line, `{{ begins {{name}} or {{> name}} and nothing else; write \{{ for the two characters themselves`)
		b.take(2)
		return
	}
	b.flush()
	b.at += len(m[0])
	switch name := m[2]; {
	case m[1] == "" && b.d.Variables[name] != nil:
		b.out = append(b.out, part{kind: variableOf, text: name, line: b.line})
	case m[1] == "":
		b.fail(b.line, "there is no variable %q in the header", name)
	case !ValidName(name):
		b.fail(b.line, "%q is not the name of a document", name)
	default:
		b.out = append(b.out, part{kind: include, text: name, line: b.line})
	}
}

// visible refuses invisible characters and the marks of the fence. The text begins on the
// given line.
func (p *parser) visible(text string, line int) bool {
	at := strings.IndexFunc(text, isFence)
	if hidden := plaintext.FirstHidden(text); at < 0 || hidden >= 0 && hidden < at {
		at = hidden
	}
	if at < 0 {
		return true
	}
	line += strings.Count(text[:at], "\n")
	if r, _ := utf8.DecodeRuneInString(text[at:]); isFence(r) {
		p.fail(line, "the marks ⟦ and ⟧ are reserved for values from callers; use others")
	} else {
		p.fail(line, "there is an invisible character here, %U; remove it", r)
	}
	return false
}

// isFence reports whether r is a mark, or one of the two characters that look the same.
func isFence(r rune) bool { return r == '⟦' || r == '⟧' || r == '〚' || r == '〛' }

// fenceMarks replaces the marks, and normalises all kinds of line ends.
var fenceMarks = strings.NewReplacer("\r\n", "\n", "\u2028", "\n", "\u2029", "\n", "⟦", "[", "⟧", "]", "〚", "[", "〛", "]")

// unhidden returns s without hidden characters, and with the fence's brackets
// replaced. It is idempotent.
func unhidden(s string) string {
	s, _ = plaintext.Clean(fenceMarks.Replace(s))
	return s
}
