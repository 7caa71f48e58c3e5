package pin

import (
	"strings"
	"unicode"

	"github.com/doorward/doorward/internal/plaintext"
)

// looks are two forms of a name; names that are equal in either of them look
// alike. Both fold case, full-width and mathematical letters, accents, and the
// letters of other scripts that most fonts draw like Latin ones. The second
// also takes I, l, 1 and | for one stroke, which must come before the case is
// folded: else every i would be an l.
//
// It is a table of the common cases in the manner of Unicode TS 39, not all of
// that report: scripts that are not in it, letter pairs such as rn and m, and
// names that differ in separators alone are not found.
func looks(name string) [2]string {
	var folded, stroked strings.Builder
	for _, r := range name {
		if r = latin(plainForm(r)); unicode.Is(unicode.Mn, r) || plaintext.Hidden(r) {
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

// fold is one representative of the cases of r, as Latin as its looks.
func fold(r rune) rune { return latin(unicode.ToLower(unicode.ToUpper(r))) }

func latin(r rune) rune {
	if l, ok := lookalikes[r]; ok {
		return l
	}
	return r
}

// plainForm maps full-width forms and the mathematical alphabets to ASCII.
func plainForm(r rune) rune {
	switch {
	case r >= 0xFF01 && r <= 0xFF5E:
		return r - 0xFF01 + '!'
	case r >= 0x1D400 && r <= 0x1D6A3: // Latin: 52 letters an alphabet
		n := (r - 0x1D400) % 52
		if n < 26 {
			return 'A' + n
		}
		return 'a' + n - 26
	case r >= 0x1D7CE && r <= 0x1D7FF: // digits
		return '0' + (r-0x1D7CE)%10
	case r >= 0x24B6 && r <= 0x24CF: // circled
		return 'A' + r - 0x24B6
	case r >= 0x24D0 && r <= 0x24E9:
		return 'a' + r - 0x24D0
	}
	return r
}

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
	// Latin that is drawn like ASCII, dotless and stroked forms
	"ıi", "ɑa", "ɡg", "ȷj", "ɩi", "ʀr", "ꜱs", "ℓl", "ℎh", "ǀl", "łl", "øo", "đd", "ħh", "ŧt",
	"ᴀa", "ʙb", "ᴄc", "ᴅd", "ᴇe", "ɢg", "ʜh", "ɪi", "ᴊj", "ᴋk", "ʟl", "ᴍm", "ɴn", "ᴏo", "ᴘp", "ᴛt", "ᴜu", "ᴠv", "ᴡw", "ʏy", "ᴢz",
	"áa", "àa", "äa", "âa", "ãa", "åa", "ée", "èe", "ëe", "êe", "íi", "ìi", "ïi", "îi", "óo", "òo", "öo", "ôo", "õo", "úu", "ùu", "üu", "ûu", "ýy", "ÿy", "çc", "ñn",
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

// joint stands between a server's name and an item's on the aggregate.
const joint = "__"

// trespasses reports whose prefix a name lies in: that of another server, in
// the form of the aggregate's names or of its addresses.
func trespasses(name, own string, servers []string) (server string, yes bool) {
	rest, isAddress := strings.CutPrefix(strings.ToLower(name), "doorward://")
	var first string
	if isAddress {
		first, _, yes = strings.Cut(rest, "/")
	} else {
		first, _, yes = strings.Cut(name, joint)
	}
	if !yes {
		return "", false
	}
	for _, s := range servers {
		if s != own && alike(looks(s), looks(first)) {
			return s, true
		}
	}
	return "", false
}

func alike(a, b [2]string) bool { return a[0] == b[0] || a[1] == b[1] }
