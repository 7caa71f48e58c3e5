package wire

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// ValidateValue accepts the sequences that unicode/utf8 does, for every first byte and
// every class of following bytes.
func TestUTF8(t *testing.T) {
	t.Parallel()
	classes := []byte{' ', 'a', 0x7E, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF}
	for first := 0x80; first <= 0xFF; first++ {
		for _, b := range classes {
			for _, c := range classes {
				for _, d := range classes {
					text := string([]byte{byte(first), b, c, d})
					err := ValidateValue([]byte(`"` + text + `"`))
					if (err == nil) != utf8.ValidString(text) || err != nil && reasonOf(err) != reasonUTF8 {
						t.Errorf("% x: %v", text, err)
					}
				}
			}
		}
		for n := range 4 { // cut by the end of the input
			text := string(append([]byte{byte(first)}, classes[4:4+n]...))
			if err := ValidateValue([]byte(`"` + text)); err == nil {
				t.Errorf("% x: accepted without its end", text)
			}
		}
	}
}

// The scan by eight bytes stops at every control, quote, backslash and non-ASCII byte,
// at any offset, and at no other.
func TestPlain(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 20 {
			for _, before := range []string{"a", " ", "!", "#", "[", "]", "\x7f"} {
				text := strings.Repeat(before, at) + string([]byte{byte(c)}) + strings.Repeat("z", 20-at)
				want := len(text)
				if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
					want = at
				}
				if got := plain([]byte(text), 0); got != want {
					t.Errorf("%q: stopped at %d, want %d", text, got, want)
				}
			}
		}
	}
}

// Two escapes are accepted when both are characters, or a high and a low surrogate in
// this order, which make one character.
func TestSurrogates(t *testing.T) {
	t.Parallel()
	halves := []int{0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 'a'}
	high := func(r int) bool { return r >= 0xD800 && r < 0xDC00 }
	low := func(r int) bool { return r >= 0xDC00 && r < 0xE000 }
	for _, a := range halves {
		for _, b := range halves {
			text := fmt.Sprintf(`"\u%04x\u%04X"`, a, b)
			ok := high(a) && low(b) || !high(a) && !low(a) && !high(b) && !low(b)
			if err := ValidateValue([]byte(text)); (err == nil) != ok {
				t.Errorf("%s: %v", text, err)
			}
			got, _ := Text([]byte(text))
			if want := string([]rune{rune(a), rune(b)}); ok && !high(a) && got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
			if want := string(rune((a-0xD800)<<10 + (b - 0xDC00) + 0x10000)); high(a) && low(b) && got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
	}
}

// TestNumbersEverywhere: a number is read alone, at the end of a text and inside one, and
// its length is bounded after any other text.
func TestNumbersEverywhere(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("7", maxNumber)
	for _, number := range []string{"0", "-0", "7", "-70", "0.5", "1.25", "1e5", "1E+5", "1.5e-7", long, "-" + long[1:], "0." + long[2:]} {
		for _, around := range [][2]string{{"", ""}, {" ", ""}, {"", " "}, {"[", "]"}, {`{"a":`, "}"}, {"[" + long + ",", "]"}} {
			if err := ValidateValue([]byte(around[0] + number + around[1])); err != nil {
				t.Errorf("%.20q in %.20q: %v", number, around, err)
			}
			if got := reasonOf(ValidateValue([]byte(around[0] + long + number + "1" + around[1]))); got == "" {
				t.Errorf("%.20q behind a long number in %.20q is accepted", number, around)
			}
		}
	}
}

// TestHexDigits: each digit of an escape counts, in either case.
func TestHexDigits(t *testing.T) {
	t.Parallel()
	for r := rune(0); r < 0xD800; r += 7 {
		for _, form := range []string{`"\u%04x"`, `"\u%04X"`} {
			raw := fmt.Sprintf(form, r)
			if got, ok := Text([]byte(raw)); !ok || got != string(r) || ValidateValue([]byte(raw)) != nil {
				t.Errorf("%s is %q", raw, got)
			}
		}
	}
	for _, c := range "/:@G`g" {
		if got := reasonOf(ValidateValue([]byte(`"\u00` + string(c) + `0"`))); got != reasonEscape {
			t.Errorf("digit %c: %q", c, got)
		}
	}
}

// TestUTF8BehindWideText: a bad sequence is refused also behind wide characters.
func TestUTF8BehindWideText(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"é", "漢", "😀", "ꀀ", "\u07ff"} {
		for _, bad := range []string{"\xe1A\x80", "\xe1\x80A", "\xc3A", "\xe2\x82", "\xf0\x9fA\x80", "\x80", "\xed\xa0\x80"} {
			if got := reasonOf(ValidateValue([]byte(`"` + before + bad + `"`))); got != reasonUTF8 {
				t.Errorf("%q behind %s: %q", bad, before, got)
			}
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`""`: "", `"a"`: "a", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u0041\u00e4\u20aC"`: "Aä€",
		`"\ud83d\ude00x"`: "😀x", `"😀"`: "😀", `"\u0000"`: "\x00", `"\\u0041"`: `\u0041`,
	} {
		if got, ok := Text([]byte(raw)); !ok || got != want {
			t.Errorf("%s: %q, %v", raw, got, ok)
		}
	}
	for _, raw := range []string{"", `"`, "1", "null", "{}", `["a"]`} {
		if got, ok := Text([]byte(raw)); ok {
			t.Errorf("%s is no string, got %q", raw, got)
		}
	}
}

// Reading bytes that were never validated does not panic.
func TestGarbageIsSurvived(t *testing.T) {
	t.Parallel()
	pieces := []string{"{", "}", "[", "]", ",", ":", `"`, `\`, `\u`, `\ud800`, "1", "t", " ", `"a"`, "\x00", "\xff", ""}
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				for _, d := range pieces {
					handle([]byte(a + b + c + d))
				}
			}
		}
	}
	handle([]byte(strings.Repeat("[", 100_000)))
	handle([]byte(strings.Repeat(`{"a":`, 100_000)))
}

// handle calls everything that reads validated bytes.
func handle(raw []byte) {
	Text(raw)
	HoldsQuestions(raw)
	ID(raw).Int()
}
