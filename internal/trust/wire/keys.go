package wire

// Object keys. Invariant: in an accepted object no two keys are equal, and at the
// protocol levels none are equal under case folding, at a cost linear in the text.

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// key is one object key that the scanner remembers until its object closes.
type key struct {
	at  int32 // its offset, for the error
	off int32 // offset of its text: in scanner.b, or if negative ^off in scanner.decoded
	n   int32 // length of its text
}

func (s *scanner) keyText(k *key) []byte {
	if k.off < 0 {
		return s.decoded[^k.off:][:k.n]
	}
	return s.b[k.off:][:k.n]
}

// remember returns the field of the key between start and end at level lv. Known keys
// set their bits in seen; all others are kept for distinct. false: the scan has failed.
func (s *scanner) remember(start, end int, kind textKind, lv level, seen *uint64) (field, bool) {
	k := key{at: int32(start), off: int32(start), n: int32(end - start)}
	text, wide := s.b[start:end], kind&hasWide != 0 // wide: not pure ASCII
	if kind&hasEscape != 0 {
		k.off = ^int32(len(s.decoded))
		s.decoded, _ = jsontext.AppendUnquote(s.decoded, s.b[start-1:end+1]) // s.text has accepted it
		text = s.decoded[^k.off:]
		k.n, wide = int32(len(text)), utf8.RuneCount(text) != len(text)
	}
	if mayBeQuestions(k.n, wide) && isQuestions(text) {
		s.questions = true
	}
	if lv > levelBatch {
		f, variant := vocabularies[lv].find(text, wide)
		if f != fieldNone {
			if *seen>>f&1 != 0 {
				s.fail(start, reasonDuplicate)
				return fieldNone, false
			}
			*seen |= 1 << f
			return f, true
		}
		if variant {
			s.refuse(start, reasonKeyVariant)
		}
		if hasControl(text, kind) {
			s.refuse(start, reasonKeyControl)
		}
	}
	if len(s.keys) == maxMembers {
		s.fail(start, reasonMembers)
		return fieldNone, false
	}
	s.keys = append(s.keys, k)
	return fieldNone, true
}

// mayBeQuestions reports whether isQuestions must be called. It excludes most keys by
// their lengths: inputRequests has a second spelling, one byte longer, as separate words.
func mayBeQuestions(n int32, wide bool) bool {
	return wide || n == int32(len(Elicitations)) || n == int32(len(InputRequests)) || n == int32(len(InputRequests)+1)
}

// hasControl reports whether text has a character of Unicode's class Cc: U+0000 to
// U+001F, U+007F to U+009F. kind is that of its raw form; if it is 0, DEL is the only
// possible one.
func hasControl(text []byte, kind textKind) bool {
	if kind == 0 {
		return bytes.IndexByte(text, 0x7F) >= 0
	}
	return bytes.IndexFunc(text, unicode.IsControl) >= 0
}

// maxPairs is the number of keys up to which all pairs are compared, without an allocation.
const maxPairs = 32

// distinct checks the keys of one object against each other: none may repeat,
// and at the protocol levels none may equal another under case folding. In small
// objects all pairs are compared; larger ones use a map, so that
// the time is linear in the length of the text.
func (s *scanner) distinct(keys []key, lv level) bool {
	if len(keys) > maxPairs {
		return s.distinctByMap(keys, lv)
	}
	for i := 1; i < len(keys); i++ {
		for j := range i {
			a, b := s.keyText(&keys[i]), s.keyText(&keys[j])
			if (bytes.Equal(a, b) || lv > levelBatch && bytes.EqualFold(a, b)) && !s.reportClash(&keys[i], &keys[j]) {
				return false
			}
		}
	}
	return true
}

// reportClash notes a clash; false: it ends the scan.
func (s *scanner) reportClash(later, earlier *key) bool {
	if bytes.Equal(s.keyText(later), s.keyText(earlier)) {
		s.fail(int(later.at), reasonDuplicate)
		return false
	}
	s.refuse(int(later.at), reasonFoldedKeys)
	return true
}

// distinctByMap is distinct with a map of the keys, folded where keys may not be equal
// under folding. Its hash is seeded, so that a sender cannot choose keys that collide.
func (s *scanner) distinctByMap(keys []key, lv level) bool {
	first := make(map[string]*key, len(keys))
	for i := range keys {
		text := string(s.keyText(&keys[i]))
		if lv > levelBatch {
			text = strings.Map(folded, text)
		}
		if earlier := first[text]; earlier == nil {
			first[text] = &keys[i]
		} else if !s.reportClash(&keys[i], earlier) {
			return false
		}
	}
	return true
}

// folded returns the smallest of the runes that are equal to r under simple folding, and of
// the ASCII letters the small one, which occurs most. Texts are equal in the sense of
// strings.EqualFold exactly if their folded runes are the same.
func folded(r rune) rune {
	least := r
	if r >= utf8.RuneSelf { // the smallest rune that equals an ASCII letter is its capital
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
	}
	if least >= 'A' && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}
