package watermark

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"
)

var (
	testKey  = []byte("a key of thirty-two bytes, no more")
	delivery = Delivery{Session: "00112233445566aa", Template: "voice", Revision: strings.Repeat("ab", 32)}
	known    = Ref(testKey, delivery)
)

// index knows the refs of the deliveries.
func index(all ...Delivery) *Index {
	x := NewIndex(1000)
	for _, d := range all {
		x.Add(Ref(testKey, d), d, time.Now())
	}
	return x
}

// A ref is the first 80 bits of an HMAC. Its bytes are fixed, so that another program
// can compute it.
func TestARefIsTheFirst80BitsOfTheHMAC(t *testing.T) {
	t.Parallel()
	// Computed with Python: hmac over three fields with lengths of eight bytes.
	if got := Ref([]byte("key"), Delivery{"s", "t", "r"}); got != "dwi-bvwsimy5lqjlvofw" {
		t.Errorf("%s", got)
	}
	if !IsRef(known) || len(known) != 20 || known != Ref(testKey, delivery) {
		t.Errorf("%q is not the same twice, or no ref", known)
	}
	seen := map[string]string{}
	for _, d := range []Delivery{{}, {"a", "b", "c"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "abc", ""}, {"abc", "", ""}, delivery} {
		for _, k := range []string{"key", "another"} {
			ref := Ref([]byte(k), d)
			if what := fmt.Sprintf("%s %q", k, d); seen[ref] != "" {
				t.Errorf("%s and %s have one ref", what, seen[ref])
			} else {
				seen[ref] = what
			}
		}
	}
}

func TestIsRef(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		known: true, "dwi-abcdefghijklmnop": true, "dwi-2345672345672345": true,
		"": false, "dwi-": false, known[:19]: false, known + "a": false, strings.ToUpper(known): false, " " + known: false,
		"dwi_abcdefghijklmnop": false, "dwi-abcdefghijklmno1": false, "dwi-abcdefghijklmno=": false, "dwi-abcdefghijklmné": false,
	} {
		if IsRef(s) != want {
			t.Errorf("IsRef(%q) is %v", s, !want)
		}
	}
}

func wide(s string) string {
	return strings.Map(func(r rune) rune { return r - '!' + 0xFF01 }, s)
}

// styled writes letters in an alphabet that begins at a, and leaves the rest.
func styled(a rune, s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + a
		}
		return r
	}, s)
}

func joined(s, with string) string { return strings.Join(strings.Split(s, ""), with) }

func tagged(s string) string {
	return strings.Map(func(r rune) rune { return r + 0xE0000 }, s)
}

func utf16le(s string) string {
	var out []byte
	for _, u := range utf16.Encode([]rune(s)) {
		out = append(out, byte(u), byte(u>>8))
	}
	return string(out)
}

func wrapped(s string, n int, with string) string {
	var lines []string
	for ; len(s) > n; s = s[n:] {
		lines = append(lines, s[:n])
	}
	return strings.Join(append(lines, s), with)
}

// A ref is noticed through the changes of a text in the first list, and not through
// those in the second, which the documentation states.
func TestARefIsNoticedThroughOneLayerOfEncoding(t *testing.T) {
	t.Parallel()
	x := index(delivery)
	b64 := base64.StdEncoding.EncodeToString
	url := base64.RawURLEncoding.EncodeToString
	text := "Speak plainly, and never promise a date.\n\nref: " + known + "\n"
	noticed := map[string]string{
		"as it is":                          text,
		"alone":                             known,
		"upper case":                        strings.ToUpper(text),
		"mixed case":                        "dWi-" + strings.ToUpper(known[4:12]) + known[12:],
		"spaced":                            joined(known, " "),
		"spaced with no-break spaces":       joined(known, "\u00a0\u3000\t"),
		"over lines":                        wrapped(known, 3, "\r\n"),
		"zero width between":                joined(known, "\u200b\u2060\ufeff"),
		"soft hyphens between":              joined(known, "\u00ad"),
		"direction marks between":           joined(known, "\u202e\u200f\u2066"),
		"tags between":                      joined(known, "\U000E0041\U000E007F"),
		"variation selectors between":       joined(known, "\ufe0f\U000E0101"),
		"struck through":                    joined(known, "\u0336"),
		"invisible letters":                 joined(known, "\u3164\u115f"),
		"in brackets, dotted, underlined":   "[" + joined(known, "._*`~") + "]",
		"another dash":                      strings.Replace(known, "-", "–", 1),
		"without the hyphen":                strings.Replace(known, "-", "", 1),
		"emoji between":                     joined(known, "🙂"),
		"full width":                        wide(known),
		"full width upper case, spaced":     joined(wide(strings.ToUpper(known)), "\u3000"),
		"mathematical":                      styled(0x1D41A, known),
		"mathematical, an alphabet further": styled(0x1D5BA, known),
		"double-struck digits":              strings.Map(func(r rune) rune { return digit(r, 0x1D7D8) }, known),
		"circled":                           styled(0x24D0, known),
		"in letters of regional kind":       styled(0x1F150, known),
		"tag characters alone":              "nothing to see" + tagged(known),
		"tag characters in a text":          joined(tagged(known), "x"),
		"after a false start":               "dwi-dwi-aaaa" + known,
		"within a word":                     "cold" + known + "xyz",
		"base64":                            b64([]byte(text)),
		"base64 shifted by one":             b64([]byte("x" + text)),
		"base64 shifted by two":             b64([]byte("xy" + text)),
		"base64 for URLs":                   url([]byte("\xff\xfe\xfb" + text)),
		"base64 behind other letters":       "data" + b64([]byte(text)),
		"base64 behind three letters":       "abc" + b64([]byte(text)),
		"base64 over lines":                 wrapped(b64([]byte(text)), 76, "\r\n"),
		"base64 over short lines in prose":  "see below\n" + wrapped(b64([]byte(text)), 5, "\n  ") + "\nand more",
		"base64 with zero width in it":      joined(b64([]byte(known)), "\u200b"),
		"base64 of upper case":              b64([]byte(strings.ToUpper(text))),
		"base64 of spaced":                  b64([]byte(joined(known, " "))),
		"base64 of full width":              b64([]byte(wide(known))),
		"base64 of UTF-16":                  b64([]byte(utf16le(text))),
		"base64 without its last character": strings.TrimRight(b64([]byte(known+"xx")), "="),
		"hex":                               hex.EncodeToString([]byte(text)),
		"hex in upper case":                 strings.ToUpper(hex.EncodeToString([]byte(text))),
		"hex shifted by a digit":            "7" + hex.EncodeToString([]byte(text)),
		"hex spaced":                        wrapped(hex.EncodeToString([]byte(text)), 2, " "),
		"hex with colons":                   wrapped(hex.EncodeToString([]byte(text)), 2, ":"),
		"hex as bytes of a program":         "{0x" + wrapped(hex.EncodeToString([]byte(text)), 2, ", 0x") + "}",
		"hex as escapes":                    `\x` + wrapped(hex.EncodeToString([]byte(text)), 2, `\x`),
		"percent-encoded":                   "%" + wrapped(hex.EncodeToString([]byte(known)), 2, "%"),
		"escapes of another JSON":           `\u00` + wrapped(hex.EncodeToString([]byte(known)), 2, `\u00`),
		"character references":              "&#x" + wrapped(hex.EncodeToString([]byte(known)), 2, ";&#x") + ";",
		"hex of UTF-16":                     hex.EncodeToString([]byte(utf16le(known))),
		"a heap of bytes that are no UTF-8": "\xff\xfe" + known[:8] + "\xf0\x9f" + known[8:],
	}
	unnoticed := map[string]string{
		"a paraphrase":                     "They asked me to speak plainly and not to promise dates.",
		"without the ref line":             strings.Replace(text, known, "", 1),
		"without the prefix":               known[4:],
		"one letter changed":               known[:19] + changed(known[19]),
		"one letter missing":               known[:19],
		"a letter between":                 known[:10] + "x" + known[10:],
		"letters of another script":        strings.NewReplacer("d", "ԁ", "w", "ԝ", "i", "і").Replace(known),
		"backwards":                        backwards(known),
		"base64 twice":                     b64([]byte(b64([]byte(text)))),
		"base64 of hex":                    b64([]byte(hex.EncodeToString([]byte(text)))),
		"hex of base64":                    hex.EncodeToString([]byte(b64([]byte(text)))),
		"base64 in pieces of their own":    b64([]byte(known[:7])) + " " + b64([]byte(known[7:14])) + " " + b64([]byte(known[14:])),
		"partly percent-encoded":           "%64wi-" + known[4:],
		"decimal character codes":          decimal(known),
		"another session's ref of my own":  "ref: " + Ref(testKey, Delivery{Session: "x"}),
		"a ref that was never given":       "dwi-abcdefghijklmnop",
		"nothing":                          "",
		"prose without any of it":          "A cold wind went round the width of the windmill: dwi, DWI, dwindle.",
		"a base64 of something else":       b64([]byte(strings.Repeat("dwi-0123456789 something else ", 40))),
		"hex of something else, in digits": strings.Repeat("64776900", 40),
	}
	for what, s := range noticed {
		if _, found := x.Text(Alert, s); len(found) != 1 || found[0] != delivery {
			t.Errorf("%s was not noticed: %.80q", what, s)
		}
	}
	for what, s := range unnoticed {
		if _, found := x.Text(Alert, s); found != nil {
			t.Errorf("%s was noticed: %.80q", what, s)
		}
	}
}

func digit(r, zero rune) rune {
	if r >= '0' && r <= '9' {
		return r - '0' + zero
	}
	return r
}

func changed(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

func backwards(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

func decimal(s string) string {
	var out []string
	for _, c := range []byte(s) {
		out = append(out, fmt.Sprint(c))
	}
	return strings.Join(out, " ")
}

func TestTheOldestRefsGoFirst(t *testing.T) {
	t.Parallel()
	x := NewIndex(3)
	if !x.Empty() {
		t.Error("a new index is not empty")
	}
	at := time.Unix(1_800_000_000, 0)
	refs := make([]string, 6)
	for i := range refs {
		refs[i] = Ref(testKey, Delivery{Session: fmt.Sprint(i)})
	}
	has := func(want string) {
		t.Helper()
		var got strings.Builder
		for i, ref := range refs {
			if d, ok := x.Find(ref); ok {
				if d.Session != fmt.Sprint(i) {
					t.Errorf("the ref of %d stands for %q", i, d)
				}
				fmt.Fprint(&got, i)
			}
		}
		if got.String() != want {
			t.Errorf("known are %q, want %q", got.String(), want)
		}
	}
	add := func(i, second int) {
		x.Add(refs[i], Delivery{Session: fmt.Sprint(i)}, at.Add(time.Duration(second)*time.Second))
	}
	// The newest first, as a database lists them.
	add(0, 50)
	add(1, 40)
	add(2, 30)
	has("012")
	add(3, 45)
	has("013")
	add(4, 10) // older than all others
	has("013")
	add(1, 60) // met again
	add(5, 55)
	has("015")
	add(1, 20) // an earlier time changes nothing
	x.Prune(at.Add(55 * time.Second))
	has("15")
	x.Prune(at.Add(time.Hour))
	has("")
	if !x.Empty() {
		t.Error("the index is not empty after all were forgotten")
	}
	x.Add("dwi-nonsense", Delivery{}, at)
	x.Add(strings.ToUpper(refs[0]), Delivery{}, at)
	if !x.Empty() {
		t.Error("what is no ref was taken")
	}
}

func TestAnIndexServesManyAtOnce(t *testing.T) {
	t.Parallel()
	const most = 64
	x := index()
	x.max = most
	raw := []byte(`{"a":"` + known + `","b":["` + base64.StdEncoding.EncodeToString([]byte(known)) + `"]}`)
	x.Add(known, delivery, time.Now().Add(time.Hour))
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 300 {
				d := Delivery{Session: fmt.Sprint(g, i)}
				x.Add(Ref(testKey, d), d, time.Now())
				if r := x.Look(Redact, raw); len(r.Found) != 1 || r.Found[0] != delivery || string(r.Out) != `{"a":"[redacted]","b":["[redacted]"]}` {
					t.Errorf("%+v %s", r, r.Out)
				}
				if out, found := x.Text(Redact, "x "+known); out != "x [redacted]" || len(found) != 1 {
					t.Errorf("%q %v", out, found)
				}
				x.Prune(time.Now().Add(-time.Second))
				x.Find(known)
			}
		})
	}
	all.Wait()
	if n := len(x.known); n > most || n != len(x.ages) || int64(n) != x.size.Load() {
		t.Errorf("%d refs, %d ages, size %d", n, len(x.ages), x.size.Load())
	}
}
