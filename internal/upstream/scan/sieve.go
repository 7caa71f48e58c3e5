package scan

import (
	"bytes"
	"slices"
)

// sieve finds in one pass over a text the rules that can match in it: those with a needed
// text in it. It looks up the first three bytes of each needed text, in any case, and then
// compares the rest.
type sieve struct {
	first  [1 << 15]bool // by grain: a needed text begins with these bytes
	byGram map[[shortest]byte][]wanted
	always []int // rules without needed texts
	all    []int
}

type wanted struct {
	text []byte // in lower case
	rule int
}

func newSieve(rules []rule) *sieve {
	s := &sieve{byGram: make(map[[shortest]byte][]wanted)}
	for i, r := range rules {
		s.all = append(s.all, i)
		if r.needs == nil {
			s.always = append(s.always, i)
		}
		for _, text := range r.needs {
			gram := [shortest]byte(text)
			s.byGram[gram] = append(s.byGram[gram], wanted{text, i})
			s.first[grain(gram[0], gram[1], gram[2])] = true
		}
	}
	return s
}

// grain returns the index of three bytes in the table; bytes that differ only in the case of
// a letter have the same index.
func grain(a, b, c byte) int { return int(a&31)<<10 | int(b&31)<<5 | int(c&31) }

// candidates returns the rules to match: those without needed texts, then the others, each in
// order.
func (s *sieve) candidates(text []byte) []int {
	// Two letters beyond ASCII fold to ASCII ones. They are rare, so all rules are matched
	// then.
	if bytes.Contains(text, []byte("ſ")) || bytes.Contains(text, []byte("\u212a")) {
		return s.all
	}
	out := s.always
	for i := 0; i+shortest <= len(text); i++ {
		if !s.first[grain(text[i], text[i+1], text[i+2])] {
			continue
		}
		gram := [shortest]byte{lower(text[i]), lower(text[i+1]), lower(text[i+2])}
		for _, w := range s.byGram[gram] {
			if beginsWith(text[i:], w.text) && !slices.Contains(out, w.rule) {
				out = append(slices.Clip(out), w.rule)
			}
		}
	}
	slices.Sort(out[len(s.always):])
	return out
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// beginsWith compares without regard to the case of ASCII letters.
func beginsWith(text, want []byte) bool {
	if len(text) < len(want) {
		return false
	}
	for i, c := range want {
		if lower(text[i]) != c {
			return false
		}
	}
	return true
}
