package plaintext

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text returns s in a printable form: an invisible character is written as a JSON
// escape (\u001b; two units beyond U+FFFF), CRLF as LF. Inside a JSON string the
// escapes have the same meaning, so JSON keeps its value.
func Text(s string) string { return escaped(s, false) }

// Line is Text on one line: line feeds and tabs are escaped too.
func Line(s string) string { return escaped(s, true) }

// Quote is s in double quotes, with what cannot be seen escaped.
func Quote(s string) string { return Line(strconv.Quote(s)) }

// Name is s when that is not empty and all of it is printable, else Quote.
func Name(s string) string {
	if s == "" || !AllPrintable(s) {
		return Quote(s)
	}
	return s
}

// AllPrintable reports whether s is UTF-8 and each of its characters printable.
func AllPrintable(s string) bool {
	for i, r := range s {
		if !Printable(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return false
		}
	}
	return true
}

// escaped keeps a joiner or selector that shapes a neighbouring character.
func escaped(s string, line bool) string {
	var out []byte // nil while all is as it was
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
			out = AppendEscape(out, r)
		}
		before2, before = noNeighbor, noNeighbor
	}
	if out == nil {
		return s
	}
	return string(out)
}

// AppendEscape appends r as it is escaped in a JSON string.
func AppendEscape(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, `\n`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if r > 0xffff {
		r -= 0x10000
		return appendUnit(appendUnit(dst, 0xd800+(r>>10)), 0xdc00+(r&0x3ff))
	}
	return appendUnit(dst, r)
}

func appendUnit(dst []byte, u rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}

// Printer writes Text to a terminal or a file. Each Write must hold whole
// characters: a half one is written as U+FFFD.
type Printer struct{ To io.Writer }

func (p Printer) Write(b []byte) (int, error) {
	text := Text(string(b))
	n, err := io.WriteString(p.To, text)
	if err == nil || n >= len(text) {
		return len(b), err
	}
	return min(n, len(b)), err
}
