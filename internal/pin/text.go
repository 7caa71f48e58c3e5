package pin

import (
	"strings"
	"unicode/utf8"
)

// Clean takes out of a text what a person would not see and a model might
// obey: control characters other than line feed and tab, terminal sequences,
// direction marks, zero-width and filler characters, tags and variation
// selectors that do not follow a character. n is how many it took; a whole
// terminal sequence counts once. Joiners inside emoji and scripts that use
// them go too: a name has no need of them, and a description is still read.
func Clean(s string) (clean string, n int) {
	i := firstHidden(s)
	if i < 0 {
		return s, 0
	}
	out := make([]byte, i, len(s))
	copy(out, s[:i])
	selectable := i > 0
	for i < len(s) {
		if size := sequence(s[i:]); size > 0 {
			i += size
			n++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		text := s[i : i+size]
		i += size
		if hidden(r) || selector(r) && !selectable {
			n++
			continue
		}
		selectable = !selector(r)
		out = append(out, text...)
	}
	return string(out), n
}

// firstHidden is where Clean has to begin, -1 when there is nothing to do.
func firstHidden(s string) int {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || hidden(rune(c)) {
			return firstHiddenRune(s, i)
		}
	}
	return -1
}

func firstHiddenRune(s string, from int) int {
	for i, r := range s[from:] {
		if hidden(r) || selector(r) {
			return from + i
		}
	}
	return -1
}

// selector: one of them chooses the form of the character before it, more of
// them carry a message.
func selector(r rune) bool { return r >= 0xFE00 && r <= 0xFE0F }

func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ', r >= 0x7F && r <= 0x9F: // C0, delete, C1
		return true
	case r < 0xAD:
		return false
	}
	switch r {
	case 0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0: // soft hyphen, joiner, marks, fillers
		return true
	}
	return r >= 0x180B && r <= 0x180F || // Mongolian selectors
		r >= 0x200B && r <= 0x200F || // zero width, direction
		r >= 0x2028 && r <= 0x202E || // line and paragraph, direction
		r >= 0x2060 && r <= 0x206F || // joiner, invisible operators, direction
		r >= 0xFFF9 && r <= 0xFFFB || // annotation
		r >= 0x1BCA0 && r <= 0x1BCA3 || r >= 0x1D173 && r <= 0x1D17A || // format controls
		r >= 0xE0000 && r <= 0xE0FFF // tags, further selectors
}

// Introducers of terminal sequences (ECMA-48): after ESC, or as one C1
// character, which stands for ESC and the letter.
const (
	esc     = 0x1B
	csi     = '['
	strs    = "]PX^_" // OSC, DCS, SOS, PM, APC: up to a terminator
	c1Base  = 0x40    // C1 character minus this is the letter, plus 0x40
	c1First = 0x80
)

// sequence is the length of the terminal sequence that s begins with, 0 when
// it begins with none. One that never ends counts as its introducer alone, so
// that it cannot take the rest of the text with it.
func sequence(s string) int {
	letter, at := introducer(s)
	switch {
	case at == 0:
		return 0
	case letter == csi:
		return at + controlSequence(s[at:])
	case strings.IndexByte(strs, letter) >= 0:
		return at + terminated(s[at:])
	}
	return at
}

// introducer is the letter behind ESC and where what follows it begins; for a
// C1 character, what it stands for.
func introducer(s string) (letter byte, at int) {
	if s[0] == esc {
		at = 1
		for at < len(s) && s[at] >= 0x20 && s[at] <= 0x2F { // intermediates
			at++
		}
		if at == len(s) || s[at] < 0x30 || s[at] > 0x7E {
			return 0, at
		}
		if at > 1 {
			return 0, at + 1
		}
		return s[at], at + 1
	}
	r, size := utf8.DecodeRuneInString(s)
	if r >= c1First && r <= 0x9F {
		return byte(r - c1Base), size
	}
	return 0, 0
}

// controlSequence is the length of parameters, intermediates and final byte.
func controlSequence(s string) int {
	i := 0
	for i < len(s) && s[i] >= 0x20 && s[i] <= 0x3F {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] <= 0x7E {
		return i + 1
	}
	return 0
}

// terminated is the length up to and with BEL or ST, 0 when there is none.
func terminated(s string) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == 0x07:
			return i + 1
		case s[i] == esc && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case strings.HasPrefix(s[i:], "\u009c"):
			return i + len("\u009c")
		}
	}
	return 0
}
