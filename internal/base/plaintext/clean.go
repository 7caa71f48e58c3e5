package plaintext

import (
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// Clean removes hidden characters and terminal sequences from a text: a person does not
// see them, but a terminal or a model might obey them. CRLF becomes LF, and a
// byte that is not UTF-8 becomes U+FFFD. n is the number of changes; a whole terminal
// sequence counts once. A joiner or selector that shapes a neighbouring character stays.
// Clean is idempotent.
func Clean(s string) (clean string, n int) {
	if FirstHidden(s) < 0 {
		return s, 0
	}
	c := cleaner{in: s, out: make([]byte, 0, len(s)), before2: noNeighbor, before: noNeighbor}
	for i := 0; i < len(s); {
		i += c.next(i)
	}
	return string(c.out), c.n
}

// separators and blanks make the replacements of CleanLine, before and after Clean.
var (
	separators = strings.NewReplacer("\u2028", "\n", "\u2029", "\n")
	blanks     = strings.NewReplacer("\n", " ", "\t", " ")
)

// CleanLine is Clean for a single line: line breaks of any kind and tabs become a
// space, which is not counted.
func CleanLine(s string) (clean string, n int) {
	s = separators.Replace(s)
	clean, n = Clean(s)
	return blanks.Replace(clean), n
}

// FirstHidden returns the offset of the first byte that Clean changes; -1: there is none.
func FirstHidden(s string) int {
	before2, before := rune(noNeighbor), rune(noNeighbor)
	for i, size := 0, 0; i < len(s); i += size {
		if c := s[i]; c >= ' ' && c < 0x7f { // never hidden
			before2, before, size = before, rune(c), 1
			continue
		}
		var r rune
		r, size = utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || visible.Hidden(r) && !shapes(before2, before, r, runeAt(s[i+size:])) {
			return i
		}
		before2, before = before, r
	}
	return -1
}

// cleaner is the state of one call of Clean. before2 and before are the last two runes
// kept; see shapes.
type cleaner struct {
	in              string
	out             []byte
	before2, before rune
	barren          int // offset before which no terminator of a text sequence was found; see sequence
	n               int
}

// next copies or skips the character or sequence at i, and returns its length.
func (c *cleaner) next(i int) int {
	r, size := utf8.DecodeRuneInString(c.in[i:])
	switch {
	case r == utf8.RuneError && size == 1:
		c.n++
		c.keep(r)
	case r == '\r' && strings.HasPrefix(c.in[i+1:], "\n"):
		c.n++
		c.keep('\n')
		return 2
	case r == esc || r >= 0x90 && r <= 0x9F:
		c.n++
		length, looked := sequence(c.in[i:], r, size, i < c.barren)
		if looked > 0 {
			c.barren = i + looked
		}
		return length
	case visible.Hidden(r) && !shapes(c.before2, c.before, r, runeAt(c.in[i+size:])):
		c.n++
	default:
		c.keep(r)
	}
	return size
}

func (c *cleaner) keep(r rune) {
	c.out = utf8.AppendRune(c.out, r)
	c.before2, c.before = c.before, r
}

// runeAt returns the first rune of s; noNeighbor: s is empty.
func runeAt(s string) rune {
	if s == "" {
		return noNeighbor
	}
	r, _ := utf8.DecodeRuneInString(s)
	return r
}
