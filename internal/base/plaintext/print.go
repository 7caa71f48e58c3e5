package plaintext

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// Text returns s in a printable form: an invisible character is written as a JSON
// escape (\u001b; two units beyond U+FFFF), CRLF as LF. Inside a JSON string the
// escapes have the same meaning, so JSON keeps its value.
func Text(s string) string { return escaped(s, false) }

// Line is Text on one line: line feeds and tabs are escaped too.
func Line(s string) string { return escaped(s, true) }

// Quote returns s in double quotes, with invisible characters escaped.
func Quote(s string) string { return Line(strconv.Quote(s)) }

// Name returns s if it is not empty and printable, and otherwise Quote(s).
func Name(s string) string {
	if s == "" || !visible.AllPrintable(s) {
		return Quote(s)
	}
	return s
}

// Word returns s if it is one printable word without quotes, and otherwise Quote(s). In a line of
// several texts it cannot be taken for more than one of them.
func Word(s string) string {
	if strings.ContainsAny(s, ` "`) {
		return Quote(s)
	}
	return Name(s)
}

// escaped is Text, or Line if line is true. It keeps a joiner or selector that shapes a
// neighbouring character.
func escaped(s string, line bool) string {
	var out []byte // nil while nothing has changed
	before2, before := rune(noNeighbor), rune(noNeighbor)
	for i, size := 0, 0; i < len(s); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(s[i:])
		asIs := shown(r) && !(r == utf8.RuneError && size == 1) || !line && (r == '\n' || r == '\t') ||
			shapes(before2, before, r, runeAt(s[i+size:]))
		if !asIs && out == nil {
			out = append(make([]byte, 0, len(s)+16), s[:i]...)
		}
		switch {
		case asIs:
			before2, before = before, r
			if out != nil {
				out = append(out, s[i:i+size]...)
			}
			continue
		case r == utf8.RuneError:
			out = append(out, "\uFFFD"...)
		case r == '\r' && !line && strings.HasPrefix(s[i+1:], "\n"):
		default:
			out = visible.AppendEscape(out, r)
		}
		before2, before = noNeighbor, noNeighbor
	}
	if out == nil {
		return s
	}
	return string(out)
}

// Printer writes Text to a terminal or a file. Each Write must contain whole
// characters: an incomplete one is written as U+FFFD.
type Printer struct{ To io.Writer }

func (p Printer) Write(b []byte) (int, error) {
	text := Text(string(b))
	n, err := io.WriteString(p.To, text)
	if err == nil || n >= len(text) {
		return len(b), err
	}
	return min(n, len(b)), err
}

// Clip returns s if it has at most most bytes, and otherwise its beginning followed by …,
// together at most most bytes.
func Clip(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	return visible.Cut(s, most-len(mark)) + mark
}
