package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// object is a JSON object with the given keys, quoted as they are.
func object(keys []string) string {
	var b strings.Builder
	for i, k := range keys {
		fmt.Fprintf(&b, `,"%s":%d`, k, i)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

func reasonOf(err error) string {
	var e *SyntaxError
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// Two equal or folding keys are found in objects of any size and at any places:
// comparison in pairs and by hash table give the same result.
func TestDuplicatesAtAnySize(t *testing.T) {
	t.Parallel()
	pairs := []struct{ name, a, b, below, at string }{ // refusal below the protocol levels, and at one
		{"equal", "same", "same", reasonDuplicate, reasonDuplicate},
		{"equal and long", "a key of some length", "a key of some length", reasonDuplicate, reasonDuplicate},
		{"escaped", "same", `s\u0061me`, reasonDuplicate, reasonDuplicate},
		{"empty", "", "", reasonDuplicate, reasonDuplicate},
		{"case", "sAme", "same", "", reasonFoldedKeys},
		{"long s", "same", "\u017fame", "", reasonFoldedKeys},
		{"Kelvin sign, escaped", "key", `\u212aey`, "", reasonFoldedKeys},
		{"Greek sigmas", "σ", "ς", "", reasonFoldedKeys},
		{"different", "same", "some", "", ""},
		{"prefix", "same", "same ", "", ""},
		{"differ behind eight bytes", "12345678a", "12345678b", "", ""},
		{"bit of case without case", "a@", "a`", "", ""},
		{"zero-padded", "a", `a\u0001`, "", reasonKeyControl},
	}
	for _, size := range []int{2, 3, 16, 17, 18, 64, 1000} {
		for _, at := range [][2]int{{0, 1}, {0, size - 1}, {size - 2, size - 1}, {size / 2, size - 1}} {
			if at[0] == at[1] {
				continue
			}
			for _, p := range pairs {
				keys := make([]string, size)
				for i := range keys {
					keys[i] = fmt.Sprintf("filler %d", i)
				}
				keys[at[0]], keys[at[1]] = p.a, p.b
				obj := object(keys)
				name := fmt.Sprintf("%s, %d keys, at %v", p.name, size, at)
				if got := reasonOf(ValidateValue([]byte(obj))); got != p.below {
					t.Errorf("%s: %q, want %q", name, got, p.below)
				}
				_, err := Parse([]byte(withParams(`{"arguments":{"deep":`+obj+`}}`)), FromClient)
				if got := reasonOf(err); got != p.below {
					t.Errorf("%s, deep in arguments: %q, want %q", name, got, p.below)
				}
				_, err = Parse([]byte(withParams(`{"arguments":`+obj+`}`)), FromClient)
				if got := reasonOf(err); got != p.at {
					t.Errorf("%s, as arguments: %q, want %q", name, got, p.at)
				}
			}
		}
	}
}

// Characters have one folded form exactly when strings.EqualFold takes them as equal.
func TestFoldingIsEqualFold(t *testing.T) {
	t.Parallel()
	byFold := map[string]rune{}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		form := string(folded(r))
		if other, ok := byFold[form]; ok && !strings.EqualFold(string(r), string(other)) {
			t.Errorf("%U and %U fold to %q, but are not equal", r, other, form)
		}
		byFold[form] = r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			if got := string(folded(o)); got != form {
				t.Errorf("%U folds to %q, %U to %q", r, form, o, got)
			}
		}
	}
}

func TestHasControl(t *testing.T) {
	t.Parallel()
	for r := rune(0); r < 0x300; r++ {
		kinds := []textKind{hasEscape} // as those below the space are written
		switch {
		case r >= utf8.RuneSelf:
			kinds = []textKind{hasWide, hasWide | hasEscape}
		case r >= ' ':
			kinds = []textKind{0, hasEscape}
		}
		for _, kind := range kinds {
			for _, text := range []string{string(r), string(r) + "b", "a" + string(r) + "b", "a" + string(r)} {
				if got := hasControl([]byte(text), kind); got != unicode.IsControl(r) {
					t.Errorf("%U in %q of kind %d: %v", r, text, kind, got)
				}
			}
		}
	}
}

// Containers beside each other do not add to the depth.
func TestSiblingsDoNotNest(t *testing.T) {
	t.Parallel()
	for _, e := range []string{`[]`, `[ ]`, `[1]`, `{}`, `{ }`, `{"a":1}`, `[{}]`, `{"a":[]}`} {
		text := strings.Repeat("[", maxDepth-2) + strings.Repeat(e+",", 3*maxDepth) + "0" + strings.Repeat("]", maxDepth-2)
		if err := ValidateValue([]byte(text)); err != nil {
			t.Errorf("many of %s: %v", e, err)
		}
	}
}

// A scanner whose buffers a message has grown is not kept; one that is kept is cleared.
func TestScannersThatGrewAreNotKept(t *testing.T) {
	const keep = 4096
	for _, c := range []struct {
		keys, decoded int
		kept          bool
	}{{64, 0, true}, {keep, keep, true}, {keep + 1, 0, false}, {0, keep + 1, false}} {
		s := &scanner{b: []byte("x"), keys: make([]key, 0, c.keys), decoded: make([]byte, 0, c.decoded)}
		if s.release(); (s.b == nil) != c.kept {
			t.Errorf("%+v: cleared %v", c, s.b == nil)
		}
	}
}

// A message is read the same after any other message, accepted or refused.
func TestScannersForget(t *testing.T) {
	t.Parallel()
	texts := []string{call300, ping, `{"a":{"b":{"c`, withParams(`{"a":1,"a":2}`), withParams(`{"\u0061":{"\u0062":}`), `[[[[`, `{"jsonrpc":"2.0","error":1}`}
	want := make([]string, len(texts))
	for i, text := range texts {
		m, err := Parse([]byte(text), FromClient)
		want[i] = fmt.Sprint(m, err)
	}
	for range 1000 {
		i := rand.IntN(len(texts))
		m, err := Parse([]byte(texts[i]), FromClient)
		if got := fmt.Sprint(m, err); got != want[i] {
			t.Fatalf("%s: %s, before %s", texts[i], got, want[i])
		}
	}
}

func TestMemberLimit(t *testing.T) {
	t.Parallel()
	keys := make([]string, maxMembers+1)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	if err := ValidateValue([]byte(object(keys[:maxMembers]))); err != nil {
		t.Errorf("%d members: %v", maxMembers, err)
	}
	if got := reasonOf(ValidateValue([]byte(object(keys)))); got != reasonMembers {
		t.Errorf("%d members: %q", len(keys), got)
	}
	// Closed objects no longer count.
	rows := "[" + strings.Repeat(`{"a":1,"b":2},`, maxMembers) + "0]"
	if err := ValidateValue([]byte(rows)); err != nil {
		t.Errorf("many small objects: %v", err)
	}
}

// Hostile texts take linear time: a text may take at most eight times as long as
// sixteen texts of a sixteenth of its size. In quadratic time it would be sixteen
// times. Both measurements are about equally long, so that load affects them alike.
func TestTimeIsLinear(t *testing.T) {
	hostile := map[string]func(n int) string{
		"many keys":            func(n int) string { return object(numbered("k%d", n)) },
		"keys with equal head": func(n int) string { return object(numbered("the same start %d", n)) },
		"escaped keys":         func(n int) string { return object(numbered(`\u006b%d`, n)) },
		"keys that all fold alike": func(n int) string {
			keys := make([]string, n)
			for i := range keys {
				k := []byte("abcdefghijklmnopqrstuvwx")
				for bit := range k {
					if i>>bit&1 != 0 {
						k[bit] -= 'a' - 'A'
					}
				}
				keys[i] = string(k)
			}
			return withParams(`{"arguments":` + object(keys) + `}`)
		},
		"wide keys beside known ones": func(n int) string { return withParams(object(numbered("\u017f%d", n))) },
		"backslashes":                 func(n int) string { return `"` + strings.Repeat(`\\`, 10*n) + `"` },
		"quotes":                      func(n int) string { return `"` + strings.Repeat(`\"`, 10*n) + `"` },
		"nested arrays":               func(n int) string { return "[" + strings.Repeat("[[[[]]]],", n) + "0]" },
	}
	for name, make := range hostile {
		t.Run(name, func(t *testing.T) {
			small, large := []byte(make(2_000)), []byte(make(32_000))
			cost := func(text []byte, times int) time.Duration {
				best := time.Hour
				for range 3 {
					start := time.Now()
					for range times {
						_, _ = Parse(text, FromServer)
						handle(text)
					}
					best = min(best, time.Since(start))
				}
				return best
			}
			many, one := cost(small, 16), cost(large, 1)
			for range 10 { // on a busy machine one of them may have been disturbed each time
				if one <= 8*many {
					break
				}
				many, one = cost(small, 16), cost(large, 1)
			}
			if one > 8*many {
				t.Errorf("16 times %d bytes took %v, %d bytes %v", len(small), many, len(large), one)
			}
		})
	}
}

func numbered(format string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(format, i)
	}
	return keys
}
