package principal

// Quoting. Invariant: the result is one valid JSON string of printable characters.

import (
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// cutMark ends a text that AppendQuoted cut.
const cutMark = "…[cut]"

// AppendQuoted appends s to dst as a JSON string in which every character that is
// not printable is escaped: controls, and the bidirectional, zero-width and tag
// characters with which a caller could make a record look like another one on a
// terminal. Bytes that are not UTF-8 become U+FFFD, one for each byte. An s longer than
// max bytes is cut at the end of a character, and "…[cut]" follows. The result is one
// valid JSON string for any s.
func AppendQuoted(dst []byte, s string, max int) []byte {
	whole, s := s, visible.Cut(s, max)
	dst = append(dst, '"')
	done := 0
	for i, r := range s {
		if r >= ' ' && r < 0x7F && r != '"' && r != '\\' {
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if r == '"' || r == '\\' || r == utf8.RuneError && n == 1 || !visible.Printable(r) {
			dst = visible.AppendEscape(append(dst, s[done:i]...), r)
			done = i + n
		}
	}
	dst = append(dst, s[done:]...)
	if len(s) < len(whole) {
		dst = append(dst, cutMark...)
	}
	return append(dst, '"')
}
