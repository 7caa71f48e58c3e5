package plaintext

import "unicode/utf8"

// Cut is the beginning of s in at most so many bytes, without a half character
// at its end.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[:max(most, 0)]
	for i := len(s) - 1; i >= 0 && len(s)-i < utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			if !utf8.FullRuneInString(s[i:]) {
				return s[:i]
			}
			break
		}
	}
	return s
}

// Clip is s in at most so many bytes: of a longer one the beginning, with … to
// say so.
func Clip(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	return Cut(s, most-len(mark)) + mark
}
