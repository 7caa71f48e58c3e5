package watermark

import (
	"unicode"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// Roles of a character that is no letter or digit of a ref.
const (
	nothing byte = 0 // ignored between them: space, punctuation, symbols, marks, invisible characters
	foreign byte = 1 // another letter or digit, which ends a ref
)

// starts are the first bytes of the first letter of a ref, in plain, full-width, circled
// and mathematical form. All other bytes are skipped quickly.
var starts = [256]bool{'d': true, 'D': true, 0xE2: true, 0xEF: true, 0xF0: true}

// second are the bytes that can follow a first letter of one byte: the next letter, an
// ignored character, or the beginning of a character outside of ASCII.
var second = secondTable()

func secondTable() (t [256]bool) {
	for b := range t {
		t[b] = b >= utf8.RuneSelf || ascii[b] == nothing || ascii[b] == 'w'
	}
	return t
}

// ascii is fold for ASCII.
var ascii = asciiTable()

func asciiTable() (t [utf8.RuneSelf]byte) {
	for c := range t {
		switch b := byte(c); {
		case b >= 'A' && b <= 'Z':
			t[c] = b + 'a' - 'A'
		case isBase32(b):
			t[c] = b
		case b >= '0' && b <= '9':
			t[c] = foreign
		}
	}
	return t
}

// fold returns the letter or digit of a ref that r stands for in any form, or nothing, or
// foreign.
func fold(r rune) byte {
	if r < utf8.RuneSelf {
		return ascii[byte(r)]
	}
	if plain := unstyled(r); plain != 0 {
		return ascii[plain]
	}
	switch {
	case visible.Hidden(r): // some of them are letters
		return nothing
	case unicode.IsLetter(r) || unicode.IsNumber(r):
		return foreign
	}
	return nothing
}

// unstyled returns the ASCII letter or digit that r is a form of; 0: none.
func unstyled(r rune) byte {
	switch {
	case r >= 0xFF01 && r <= 0xFF5E: // full width
		return byte(r - 0xFF01 + '!')
	case r >= 0x1D400 && r <= 0x1D6A3: // mathematical letters: consecutive alphabets
		return 'a' + byte((r-0x1D400)%26)
	case r >= 0x1D7CE && r <= 0x1D7FF: // and digits
		return '0' + byte((r-0x1D7CE)%10)
	case r >= 0x249C && r <= 0x24E9: // in brackets, in circles large and small
		return 'a' + byte((r-0x249C)%26)
	case r >= 0x2460 && r <= 0x2468: // digits in circles
		return '1' + byte(r-0x2460)
	case r >= 0x1F130 && r <= 0x1F149, r >= 0x1F150 && r <= 0x1F169, r >= 0x1F170 && r <= 0x1F189: // in squares and discs
		return 'a' + byte((r-0x1F130)%32)
	}
	return letterlike[r]
}

// letterlike holds the mathematical letters that are encoded elsewhere, and the two
// characters that fold to ASCII.
var letterlike = map[rune]byte{
	'ℂ': 'c', 'ℊ': 'g', 'ℋ': 'h', 'ℌ': 'h', 'ℍ': 'h', 'ℎ': 'h', 'ℐ': 'i', 'ℑ': 'i', 'ℒ': 'l', 'ℓ': 'l', 'ℕ': 'n',
	'ℙ': 'p', 'ℚ': 'q', 'ℛ': 'r', 'ℜ': 'r', 'ℝ': 'r', 'ℤ': 'z', 'ℨ': 'z', 'ℬ': 'b', 'ℭ': 'c', 'ℯ': 'e', 'ℰ': 'e',
	'ℱ': 'f', 'ℳ': 'm', 'ℴ': 'o', 'ℹ': 'i', 'ⅅ': 'd', 'ⅆ': 'd', 'ⅇ': 'e', 'ⅈ': 'i', 'ⅉ': 'j', 'K': 'k', 'ſ': 's',
}
