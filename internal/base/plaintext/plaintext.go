// Package plaintext removes the characters that a person cannot see from texts of
// servers and agents, and escapes them in printed output.
//
// Invariant: a result of Clean has no hidden character, except a single
// joiner or selector that shapes the visible characters beside it. A text therefore
// tells a model nothing that a person who reads it does not see.
//
// Package trust/visible decides what is hidden. Known limit: kept joiners and
// selectors can carry one bit for each character that they shape.
package plaintext

import (
	"unicode"

	"github.com/doorward/doorward/internal/trust/visible"
)

// shown reports whether r may be printed as it is.
func shown(r rune) bool {
	return !visible.Hidden(r) && (unicode.IsGraphic(r) || unicode.Is(unicode.Prepended_Concatenation_Mark, r))
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
// A.2). before2 and before are the last two runes kept before r, after is the next rune.
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
	return isVirama(before) && (unicode.IsLetter(before2) || unicode.IsMark(before2) && !isVirama(before2) && !visible.Hidden(before2))
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

// emoji holds the blocks and single characters of emoji that take a selector or a
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
