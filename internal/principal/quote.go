package principal

import (
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// cutMark stands at the end of text that AppendQuoted cut.
const cutMark = "…[cut]"

// AppendQuoted appends s to dst as a JSON string in which everything that is
// not printable is escaped: controls, and the bidirectional, zero-width and tag
// characters with which a caller could make a record look like another one on a
// terminal. Bytes that are not UTF-8 become U+FFFD, one for each byte. Of an s
// longer than max bytes the first ones are kept, never half a character, and
// "…[cut]" follows. Whatever s is, the result is one valid JSON string.
func AppendQuoted(dst []byte, s string, max int) []byte {
	cut := len(s) > max
	if cut {
		s = s[:max]
		for i := 0; i < utf8.UTFMax-1 && len(s) > 0 && lastIncomplete(s); i++ {
			s = s[:len(s)-1]
		}
	}
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
				i++
				continue
			}
			dst = appendEscaped(append(dst, s[done:i]...), rune(c))
			i++
			done = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			dst = appendEscaped(append(dst, s[done:i]...), r)
			done = i + n
		}
		i += n
	}
	dst = append(dst, s[done:]...)
	if cut {
		dst = append(dst, cutMark...)
	}
	return append(dst, '"')
}

// lastIncomplete reports whether s ends in the beginning of a character.
func lastIncomplete(s string) bool {
	for i := len(s) - 1; i >= 0 && len(s)-i < utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return !utf8.FullRuneInString(s[i:])
		}
	}
	return false
}

func appendEscaped(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, '\\', 'n')
	case '\t':
		return append(dst, '\\', 't')
	}
	if r > 0xffff {
		r -= 0x10000
		return appendUnit(appendUnit(dst, 0xd800+(r>>10)), 0xdc00+(r&0x3ff))
	}
	return appendUnit(dst, r)
}

func appendUnit(dst []byte, u rune) []byte {
	return append(dst, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}
