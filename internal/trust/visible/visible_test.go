package visible

import (
	"encoding/json"
	"testing"
	"unicode"
	"unicode/utf8"
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

func TestHiddenIsExactlyWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	want := make(map[rune]bool)
	for _, r := range unseen() {
		want[r] = true
	}
	if len(want) < 4200 {
		t.Fatalf("only %d code points are hidden: the tables are not what they were", len(want))
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if Hidden(r) != want[r] {
			t.Fatalf("Hidden(%U) = %v", r, Hidden(r))
		}
	}
	for _, r := range []rune{0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x180B, 0x180F, 0x200B, 0x2028, 0x202E, 0x2060, 0x2065, 0x2069, 0x206F,
		0x3164, 0xFE00, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF0, 0xFFF9, 0x1BCA0, 0x1D173, 0xE0000, 0xE0001, 0xE007F, 0xE01EF, 0xE0FFF} {
		if !want[r] {
			t.Errorf("%U is not among them: the test is wrong", r)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcde"}, {"ééé", 5, "éé"}, {"ééé", 4, "éé"},
		{"👍👍", 7, "👍"}, {"abc", 0, ""}, {"abc", -1, ""}, {"", 0, ""}, {"a\xff\xff\xff", 3, "a\xff\xff"},
		{"é", 1, ""}, {"a\xc3", 2, "a\xc3"}, {"a\xc3", 3, "a\xc3"},
	} {
		if got := Cut(c.in, c.most); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}
}

// The escape of any character is ASCII, and JSON decodes it to the character.
func TestEscapesMeanTheCharacter(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		escape := AppendEscape([]byte(`"`), r)
		var got string
		if err := json.Unmarshal(append(escape, '"'), &got); err != nil || got != string(r) {
			t.Fatalf("%U: %s is %q, %v", r, escape, got, err)
		}
		for _, c := range escape {
			if c < ' ' || c > '~' {
				t.Fatalf("%U: %s is not printable ASCII", r, escape)
			}
		}
		if Printable(r) && Hidden(r) || Printable(r) != AllPrintable(string(r)) {
			t.Fatalf("%U: printable %v, hidden %v", r, Printable(r), Hidden(r))
		}
	}
}
