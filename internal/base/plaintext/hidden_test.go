package plaintext

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// unseen lists all hidden code points by the definition of
// Default_Ignorable_Code_Point in DerivedCoreProperties.txt and the lists of
// controls. It does not use the code under test.
func unseen() []rune {
	var all []rune
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xD800 && r <= 0xDFFF || r == '\n' || r == '\t' {
			continue
		}
		ignorable := unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf, unicode.Variation_Selector) &&
			!unicode.In(r, unicode.White_Space, unicode.Prepended_Concatenation_Mark)
		if ignorable || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			all = append(all, r)
		}
	}
	return all
}

// carriers are characters that a hidden one may stand beside.
var carriers = []string{"", "a", " ", "\n", "1", "#", "é", "漢", "葛", "❤", "⚠", "👩", "🏽", "🏴", "ب", "م", "ى", "क", "क\u094d", "ක\u0dca", "র",
	"ᠠ", "\u0301", "\ufffd", "\u2800", "ᄀ", "\u20e3"}

// alphabets are sets of hidden characters that can encode a text.
func alphabets() map[string][]rune {
	of := map[string][]rune{
		"zero width":  {0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF},
		"joiners":     {0x200C, 0x200D},
		"operators":   {0x2061, 0x2062, 0x2063, 0x2064},
		"direction":   {0x200E, 0x200F, 0x061C, 0x202A, 0x202B, 0x202C, 0x202D, 0x202E, 0x2066, 0x2067, 0x2068, 0x2069},
		"fillers":     {0x115F, 0x1160, 0x3164, 0xFFA0},
		"Khmer":       {0x17B4, 0x17B5},
		"Mongolian":   {0x180B, 0x180C, 0x180D, 0x180E, 0x180F},
		"deprecated":  {0x206A, 0x206B, 0x206C, 0x206D, 0x206E, 0x206F},
		"forms":       {0xFE0E, 0xFE0F},
		"separators":  {0x2028, 0x2029},
		"emoji parts": {0x200D, 0xFE0E, 0xFE0F},
		"all":         unseen(),
	}
	for name, bounds := range map[string][2]rune{"C0": {1, 8}, "C1": {0x80, 0x9F}, "selectors": {0xFE00, 0xFE0F}, "tags": {0xE0020, 0xE007F},
		"more selectors": {0xE0100, 0xE01EF}, "reserved": {0xE0080, 0xE00FF}, "specials": {0xFFF0, 0xFFFB},
		"shorthand": {0x1BCA0, 0x1BCA3}, "music": {0x1D173, 0x1D17A}, "hieroglyphs": {0x13430, 0x1343F}} {
		for r := bounds[0]; r <= bounds[1]; r++ {
			of[name] = append(of[name], r)
		}
	}
	return of
}

// leftHidden counts the hidden characters in s and the largest run of them.
// An emoji form in front of a joiner is the only run of two that may stay.
func leftHidden(s string) (all, run int) {
	n := 0
	for _, r := range strings.ReplaceAll(s, "\ufe0f\u200d", "\u200d") {
		if n++; !visible.Hidden(r) {
			n = 0
			continue
		}
		all++
		run = max(run, n)
	}
	return all, run
}

// Clean, Text and Line leave at most one of 64 hidden characters, of any alphabet
// and between any two carriers. A hidden text needs many.
func TestAtMostOneHiddenCharacterIsLeft(t *testing.T) {
	t.Parallel()
	for name, letters := range alphabets() {
		for _, front := range carriers {
			for _, behind := range carriers {
				var hidden strings.Builder
				for range 64 {
					hidden.WriteRune(letters[rand.IntN(len(letters))])
				}
				text := front + hidden.String() + behind
				clean, n := Clean(text)
				if all, _ := leftHidden(clean); all > 1 {
					t.Errorf("%s between %q and %q: %q is left", name, front, behind, clean)
				}
				if n == 0 {
					t.Errorf("%s between %q and %q: nothing was counted", name, front, behind)
				}
				for what, printed := range map[string]string{"Text": Text(text), "Line": Line(text)} {
					if all, _ := leftHidden(printed); all > 1 {
						t.Errorf("%s between %q and %q: %s prints %q", name, front, behind, what, printed)
					}
				}
			}
		}
	}
}

// Clean removes a single hidden character between two visible ones, and Line,
// Name and Quote escape it.
func TestEveryHiddenCharacterIsTakenOutAndShownWhenPrinted(t *testing.T) {
	t.Parallel()
	for _, r := range unseen() {
		for _, beside := range []string{"a", "漢", "_", "1", "é"} {
			in := beside + string(r) + beside
			want := beside + beside
			if r == '\r' {
				in += "\n"
				want += "\n"
			}
			if r == esc || r >= 0x90 && r <= 0x9F {
				continue // it begins a sequence: TestClean
			}
			if got, n := Clean(in); got != want || n != 1 {
				t.Errorf("Clean(%q) = %q, %d", in, got, n)
			}
			if got := Line(beside + string(r) + beside); strings.ContainsRune(got, r) || !strings.Contains(got, `\u`) {
				t.Errorf("Line shows %U as %q", r, got)
			}
			if visible.Printable(r) || visible.AllPrintable(in) || !strings.Contains(Name(in), `\`) || !strings.Contains(Quote(in), `\`) {
				t.Errorf("%U is printable", r)
			}
		}
	}
}

// Clean and Text leave ordinary writing of many scripts, emoji and spaces unchanged.
func TestWhatPeopleWriteStays(t *testing.T) {
	t.Parallel()
	for what, s := range map[string]string{
		"emoji in emoji form":     "❤\ufe0f ⚠\ufe0f ℹ\ufe0f ✔\ufe0f ☎\ufe0e ©\ufe0f",
		"keycaps":                 "1\ufe0f⃣ #\ufe0f⃣ *\ufe0f⃣",
		"people at work":          "👩\u200d💻 👨🏽\u200d🚀 👩\u200d❤\ufe0f\u200d💋\u200d👨 🧑\u200d🤝\u200d🧑 🐻\u200d❄\ufe0f 👁\ufe0f\u200d🗨\ufe0f",
		"a family":                "👨\u200d👩\u200d👧\u200d👦",
		"flags":                   "🇩🇪 🏳\ufe0f\u200d🌈 🏴\u200d☠\ufe0f",
		"Persian":                 "می\u200cخواهم کتاب\u200cها را",
		"Hindi":                   "क्\u200dष क्\u200cष विद्\u200dया",
		"Bengali":                 "র\u200d্যাব",
		"Sinhala":                 "ශ්\u200dරී ලංකා",
		"Malayalam":               "അവന്\u200d",
		"accents, both ways":      "é e\u0301",
		"Hebrew, Arabic":          "שלום مرحبا",
		"an Arabic number mark":   "\u06dd٣",
		"Korean":                  "한국어 각",
		"wide spaces":             "a\u3000b\u00a0c",
		"line feeds and tabs":     "a\n\tb",
		"a replacement character": "a\ufffdb",
	} {
		if got, n := Clean(s); got != s || n != 0 {
			t.Errorf("%s: Clean(%+q) = %+q, %d", what, s, got, n)
		}
		if got := Text(s); got != s {
			t.Errorf("%s: Text(%+q) = %+q", what, s, got)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"plain", "a\r\nb", "\x1b[31m", "\x1b]0;x", "\u009b1", "\u202e", "\U000E0041", "\x1b\x1b[[", "\r\u200b\n", "\x1b\u200b[31m",
		"👩\u200d\u200b💻", "❤\ufe0f\u200d\ufe0f", "क\u094d\u200d\u094d\u200c", "1\ufe0f\u200b\u20e3", "ب\u200c\u200cب", "\xff\u200d", "👩\u200d\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		clean, n := Clean(s)
		if !utf8.ValidString(clean) || (n == 0) != (clean == s) {
			t.Fatalf("%q became %q, %d", s, clean, n)
		}
		if again, m := Clean(clean); again != clean || m != 0 {
			t.Fatalf("%q is not clean: %q, %d", clean, again, m)
		}
		if _, run := leftHidden(clean); run > 1 {
			t.Fatalf("%q became %q, with a run of %d", s, clean, run)
		}
		if line, _ := CleanLine(s); strings.ContainsAny(line, "\n\t\r\u2028\u2029\u0085") {
			t.Fatalf("%q became the line %q", s, line)
		}
		for _, printed := range []string{Text(s), Line(s)} {
			if again := Text(printed); again != printed || !utf8.ValidString(printed) {
				t.Fatalf("%q is printed %q, and then %q", s, printed, again)
			}
			if _, n := Clean(printed); n != 0 {
				t.Fatalf("%q is printed %q", s, printed)
			}
		}
		if cut := Clip(s, 9); len(cut) > 9 || utf8.ValidString(s) && !utf8.ValidString(cut) {
			t.Fatalf("%q clipped is %q", s, cut)
		}
	})
}

func ExampleText() {
	fmt.Println(Text("a\x1b[31mred\u202e\u3164\U000E0041"))
	// Output: a\u001b[31mred\u202e\u3164\udb40\udc41
}
