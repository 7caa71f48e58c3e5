// Package lookalike compares names by their appearance.
//
// A name that looks like another one must not evade a deny list or a pin, or mislead a
// person who reads a list.
//
// Invariant: Forms and Shown are pure functions of the name.
package lookalike

import (
	"cmp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/doorward/doorward/internal/trust/visible"
)

// Forms returns two forms of a name; names that are equal in either of them look
// alike. Both fold case, compatibility forms such as full-width and mathematical
// letters, accents, and the letters of other scripts that most fonts draw like
// Latin ones. The second form also treats I, l, 1 and | as equal. That step precedes the
// folding of case: otherwise every i would become an l.
//
// The table has the common cases of Unicode TS 39, not all of them. Names in scripts that
// it lacks, letter pairs such as rn and m, and names that differ only in separators are not found.
func Forms(name string) [2]string {
	var folded, stroked strings.Builder
	for _, r := range norm.NFKD.String(name) {
		if r = latin(r); unicode.Is(unicode.Mn, r) || visible.Hidden(r) {
			continue
		}
		folded.WriteRune(fold(r))
		if r == 'I' || r == '1' || r == '|' {
			r = 'l'
		}
		stroked.WriteRune(fold(r))
	}
	return [2]string{folded.String(), stroked.String()}
}

// Shown returns the Forms of a name without its invisible characters: white
// space, control and format characters, and default-ignorable code points.
func Shown(name string) [2]string {
	return Forms(strings.Join(strings.FieldsFunc(name, func(r rune) bool { return unicode.IsOneOf(unseen, r) }), ""))
}

var unseen = []*unicode.RangeTable{unicode.White_Space, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector}

// Alike reports whether two forms are those of names that look alike.
func Alike(a, b [2]string) bool { return a[0] == b[0] || a[1] == b[1] }

// fold returns one representative of the cases of r, replaced by the Latin letter that it
// looks like.
func fold(r rune) rune { return latin(unicode.ToLower(unicode.ToUpper(r))) }

func latin(r rune) rune { return cmp.Or(lookalikes[r], r) }

// lookalikes maps letters to the ASCII letters they are drawn like.
var lookalikes = pairs(
	// Cyrillic
	"аa", "вb", "сc", "ԁd", "еe", "ёe", "һh", "іi", "їi", "јj", "кk", "ӏl", "мm", "нh", "оo", "рp", "ԛq", "гr", "ѕs", "тt", "уy", "ѵv", "ԝw", "хx", "ьb", "зz", "пn",
	"АA", "ВB", "СC", "ЕE", "НH", "ІI", "ЈJ", "КK", "МM", "ОO", "РP", "Ѕs", "ТT", "УY", "ХX", "ӀI", "ԌG", "ԚQ", "ԜW",
	// Greek
	"αa", "βb", "γy", "εe", "ηn", "ιi", "κk", "νv", "οo", "ρp", "τt", "υu", "χx", "ωw",
	"ΑA", "ΒB", "ΕE", "ΖZ", "ΗH", "ΙI", "ΚK", "ΜM", "ΝN", "ΟO", "ΡP", "ΤT", "ΥY", "ΧX", "ϲc", "ϳj",
	// Armenian
	"աw", "ցg", "հh", "յj", "ոn", "սu", "օo", "ԱU", "ՍU", "ՕO", "զq", "լl",
	// other Latin letters that look like ASCII letters, dotless and stroked forms
	"ıi", "ɑa", "ɡg", "ȷj", "ɩi", "ʀr", "ꜱs", "ℓl", "ℎh", "ǀl", "łl", "øo", "đd", "ħh", "ŧt",
	"ᴀa", "ʙb", "ᴄc", "ᴅd", "ᴇe", "ɢg", "ʜh", "ɪi", "ᴊj", "ᴋk", "ʟl", "ᴍm", "ɴn", "ᴏo", "ᴘp", "ᴛt", "ᴜu", "ᴠv", "ᴡw", "ʏy", "ᴢz",
	// digits and punctuation
	"0o", "‐-", "‑-", "‒-", "–-", "—-", "−-", "﹣-", "＿_", "․.", "∕/", "⁄/",
)

func pairs(of ...string) map[rune]rune {
	m := make(map[rune]rune, len(of))
	for _, p := range of {
		r := []rune(p)
		m[r[0]] = r[1]
	}
	return m
}
