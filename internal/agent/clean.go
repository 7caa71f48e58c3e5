package agent

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// errBody: text that is not UTF-8 or holds a NUL is refused, because two
// readers would not see the same in it.
var errBody = errors.New("not UTF-8, or with a NUL")

// Clean takes out of a text what a person would not see and a terminal or a
// model might obey: controls other than line feed and tab, terminal sequences,
// direction marks, zero-width characters and tags; CRLF becomes LF. n counts
// each of them, a whole terminal sequence once. Joiners of emoji and scripts
// (U+200C, U+200D) stay. What Clean gives, Clean leaves as it is.
func Clean(s string) (clean string, n int, err error) {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return "", 0, errBody
	}
	i := strings.IndexFunc(s, unwanted)
	if i < 0 {
		return s, 0, nil
	}
	out := append(make([]byte, 0, len(s)), s[:i]...)
	barren := 0
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			out = append(out, '\n')
			size = 2
			n++
		case r == 0x1B || r >= 0x90 && r <= 0x9F:
			var looked int
			if size, looked = sequence(s[i:], r, size, i < barren); looked > 0 {
				barren = i + looked
			}
			n++
		case unwanted(r):
			n++
		default:
			out = append(out, s[i:i+size]...)
		}
		i += size
	}
	return string(out), n, nil
}

// CleanLine is Clean for what stands on one line: breaks of any kind and tabs
// become a space, which counts as nothing.
func CleanLine(s string) (clean string, n int, err error) {
	clean, n, err = Clean(s)
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, clean), n, err
}

// unwanted is what never stays, apart from what follows it in a sequence.
func unwanted(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ', r >= 0x7F && r <= 0x9F: // C0, delete, C1
		return true
	case r < 0x061C:
		return false
	}
	return isDirection(r) ||
		r == 0x200B || r == 0xFEFF || r >= 0x2060 && r <= 0x2064 || // zero width
		r >= 0xE0000 && r <= 0xE01EF // tags and variation selectors
}

// isDirection: characters that change the order in which others are shown.
func isDirection(r rune) bool {
	return r == 0x061C || r == 0x200E || r == 0x200F || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
}

// sequence is the length of the terminal sequence that s begins with: its
// introducer is ESC and another byte, or one C1 control, of size bytes. Where
// the sequence does not end on its line the introducer alone is taken, so that
// nobody's text disappears in it; what is left is harmless without it. looked
// says how far there is nothing that ends one which carries text, and barren
// that this is known already: many introducers must not cost the square.
func sequence(s string, r rune, size int, barren bool) (length, looked int) {
	kind, at := byte(r-0x40), size // C1 controls are ESC and the byte 0x40 below
	if r == 0x1B {
		if len(s) < 2 {
			return 1, 0
		}
		kind, at = s[1], 2
	}
	switch {
	case kind == '[':
		return control(s, at), 0
	case kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_':
		if barren {
			return at, 0
		}
		return text(s, at)
	case r != 0x1B:
		return size, 0
	case kind >= 0x20 && kind <= 0x2F: // ESC, intermediates, final
		return intermediate(s, at), 0
	case kind >= 0x30 && kind <= 0x7E:
		return 2, 0
	}
	return 1, 0
}

// control is the length of a sequence with parameters, up to its final byte.
func control(s string, at int) int {
	for i := at; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7E:
			return i + 1
		case c < 0x20 || c > 0x3F:
			return at
		}
	}
	return at
}

func intermediate(s string, at int) int {
	for i := at; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 0x30 && c <= 0x7E:
			return i + 1
		case c < 0x20 || c > 0x2F:
			return at
		}
	}
	return at
}

// text is the length of a sequence that carries text, up to BEL or ST.
func text(s string, at int) (length, looked int) {
	for i := at; i < len(s); i++ {
		switch {
		case s[i] == '\n':
			return at, i
		case s[i] == 0x07:
			return i + 1, 0
		case strings.HasPrefix(s[i:], "\x1b\\"), strings.HasPrefix(s[i:], "\u009c"):
			return i + 2, 0
		}
	}
	return at, len(s)
}
