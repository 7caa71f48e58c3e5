// Package plaintext decides which characters of a text a person can see. It
// takes the others out of what servers and agents say, and makes them visible
// in what is printed.
//
// Invariant: what Clean gives holds no hidden character, but for a single
// joiner or selector that shapes the visible characters beside it. So nothing
// can be said to a model that a person who looks at the text does not see.
//
// Hidden is made from the properties of package unicode and grows with it.
// Admitted limits: spaces of several widths, the braille blank and characters
// that look alike are visible here. Kept joiners and selectors can carry one
// bit for each character that they shape.
package plaintext

import "unicode"

// Hidden reports whether a person does not see r: controls but line feed and
// tab, the format characters (direction marks, zero-width characters, tags),
// line and paragraph separators, and everything that is to be ignored where it
// is not understood (Default_Ignorable_Code_Point: fillers, selectors, and
// what is reserved for their like).
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
	case unicode.Is(unicode.Cf, r): // those that stand before digits in Arabic and its like are drawn
		return !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	}
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Printable reports whether r can be seen and cannot be taken for a space that
// it is not: the only white space is the ASCII space.
func Printable(r rune) bool { return unicode.IsPrint(r) && !Hidden(r) }

// shown reports whether r may be printed as it is.
func shown(r rune) bool {
	return !Hidden(r) && (unicode.IsGraphic(r) || unicode.Is(unicode.Prepended_Concatenation_Mark, r))
}

// The characters that shape others, and the characters that they may follow.
const (
	nonJoiner  = 0x200C
	joiner     = 0x200D
	textForm   = 0xFE0E
	emojiForm  = 0xFE0F
	keycap     = 0x20E3
	noNeighbor = -1
)

// shapes reports whether r is a joiner or a selector that changes how the
// characters beside it are drawn: in emoji, in Indic scripts beside a virama,
// and between letters of scripts that join them (compare RFC 5892, A.1 and
// A.2). The two runes before r are those that are kept, after is the next one.
func shapes(before2, before, r, after rune) bool {
	switch r {
	case textForm, emojiForm:
		return isEmoji(before) || after == keycap && (before >= '0' && before <= '9' || before == '#' || before == '*')
	case nonJoiner:
		return afterVirama(before2, before) || joins(before) && joins(after)
	case joiner:
		if before == emojiForm {
			before = before2
		}
		return isEmoji(before) && isEmoji(after) || afterVirama(before2, before) || unicode.IsLetter(before) && isVirama(after)
	}
	return false
}

func afterVirama(before2, before rune) bool {
	return isVirama(before) && (unicode.IsLetter(before2) || unicode.IsMark(before2) && !isVirama(before2) && !Hidden(before2))
}

func isVirama(r rune) bool {
	switch r {
	case 0x094D, 0x09CD, 0x0A4D, 0x0ACD, 0x0B4D, 0x0BCD, 0x0C4D, 0x0CCD, 0x0D4D, 0x0DCA:
		return true
	}
	return false
}

// joins reports whether r is a letter of a script that joins its letters.
func joins(r rune) bool {
	return unicode.IsLetter(r) && unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Nko, unicode.Mongolian, unicode.Mandaic, unicode.Adlam)
}

func isEmoji(r rune) bool { return r >= 0xA9 && unicode.Is(emoji, r) }

// emoji are the blocks and single characters of emoji that take a selector or a
// joiner (emoji-variation-sequences.txt, emoji-zwj-sequences.txt). All of them
// are visible.
var emoji = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x00A9, 0x00A9, 1}, {0x00AE, 0x00AE, 1}, {0x203C, 0x203C, 1}, {0x2049, 0x2049, 1}, {0x2122, 0x2122, 1}, {0x2139, 0x2139, 1},
		{0x2190, 0x21FF, 1}, {0x2300, 0x23FF, 1}, {0x24C2, 0x24C2, 1}, {0x25A0, 0x27BF, 1}, {0x2934, 0x2935, 1}, {0x2B00, 0x2BFF, 1},
		{0x3030, 0x3030, 1}, {0x303D, 0x303D, 1}, {0x3297, 0x3297, 1}, {0x3299, 0x3299, 1},
	},
	R32:         []unicode.Range32{{0x1F000, 0x1FAFF, 1}},
	LatinOffset: 2,
}
