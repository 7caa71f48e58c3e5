// Package visible determines which characters a person can see. Names and reasons
// with invisible characters are refused or escaped, so that no record, principal or rule
// looks like another one.
//
// Invariant: Printable implies not Hidden. Hidden uses the properties of package unicode
// and follows its versions. Known limits: spaces of other widths and the braille blank
// are not Hidden, and characters that look alike are not distinguished.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Hidden reports whether r is invisible: controls except line feed and
// tab, the format characters (direction marks, zero-width characters, tags),
// line and paragraph separators, and the code points with the Unicode property
// Default_Ignorable_Code_Point (fillers, variation selectors, and code points reserved
// for such characters).
func Hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ', r >= 0x7F && r <= 0x9F: // C0, delete, C1
		return true
	case r < 0x34F && r != 0xAD, r > 0x3164 && r < 0xD800: // the text of most languages
		return false
	case r == 0x2028 || r == 0x2029:
		return true
	case unicode.Is(unicode.Cf, r): // signs that enclose following digits, as in Arabic, are visible
		return !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	}
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Printable reports whether r is visible or the ASCII space. Other white space is not
// printable, because it looks like the ASCII space.
func Printable(r rune) bool {
	return r >= ' ' && r < 0x7F || unicode.IsPrint(r) && !Hidden(r)
}

// AllPrintable reports whether s is UTF-8 and each of its characters printable.
func AllPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !Printable(r) })
}

// Cut returns the beginning of s, at most most bytes, without an incomplete character at its end.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[:max(most, 0)]
	rest := s[max(len(s)-utf8.UTFMax, 0):]
	for utf8.FullRuneInString(rest) {
		rest = rest[1:]
	}
	return s[:len(s)-len(rest)]
}

// AppendEscape appends r as a JSON escape sequence.
func AppendEscape(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, `\n`...)
	case '\t':
		return append(dst, `\t`...)
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		dst = fmt.Appendf(dst, `\u%04x`, unit)
	}
	return dst
}
