package principal_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/visible"
)

func TestQuotedIsSafeToShow(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                         `""`,
		"plain/é/日本":               `"plain/é/日本"`,
		`a"b\c`:                    `"a\"b\\c"`,
		"a\nb\tc\x00\x1b[2J\x7f":   `"a\nb\tc\u0000\u001b[2J\u007f"`,
		"\u009b31m\u202e\u200b":    `"\u009b31m\u202e\u200b"`,
		"\u2028\ufeff\U000e0041":   `"\u2028\ufeff\udb40\udc41"`,
		"\xff\xc0\x80\xed\xa0\x80": `"\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd"`,
		"<script>&\U0001f600":      "\"<script>&\U0001f600\"",
	} {
		if got := string(principal.AppendQuoted(nil, in, math.MaxInt)); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestQuotedIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"abc", 3, `"abc"`}, {"abcd", 3, `"abc…[cut]"`}, {"abc", 0, `"…[cut]"`},
		{"aé", 2, `"a…[cut]"`}, {"a日", 3, `"a…[cut]"`}, {"日本", 3, `"日…[cut]"`}, {"a\U0001f600", 4, `"a…[cut]"`},
		{"a\x80\x80\x80\x80", 4, `"a\ufffd\ufffd\ufffd…[cut]"`},
	} {
		if got := string(principal.AppendQuoted(nil, c.in, c.max)); got != c.want {
			t.Errorf("%q cut at %d: got %s, want %s", c.in, c.max, got, c.want)
		}
	}
	if n := len(principal.AppendQuoted(nil, strings.Repeat("\x01", 1<<20), 512)); n > 512*6+16 {
		t.Errorf("a megabyte of controls became %d bytes", n)
	}
}

// A hidden character is escaped in a quoted text and refused in the name of a
// principal.
func TestNothingHiddenIsQuotedAsItIs(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !visible.Hidden(r) {
			continue
		}
		quoted := string(principal.AppendQuoted(nil, "a"+string(r)+"b", 64))
		if strings.ContainsRune(quoted, r) || !strings.Contains(quoted, `\u`) {
			t.Errorf("%U is quoted as %s", r, quoted)
		}
		if _, _, err := principal.Parse("oauth:https://i.example#a" + string(r) + "b"); err == nil {
			t.Errorf("%U may stand in a principal's name", r)
		}
	}
}

// FuzzQuoted: any text gives one JSON string of printable characters with the same
// value, and a text that is cut gives valid JSON.
func FuzzQuoted(f *testing.F) {
	for _, s := range []string{"", "a", "é\xff", "\u202e\U000e0041", "\x00\"\\", "日本"} {
		f.Add(s, 4)
	}
	f.Fuzz(func(t *testing.T, s string, max int) {
		whole := principal.AppendQuoted([]byte("x"), s, math.MaxInt)[1:]
		var got string
		if err := json.Unmarshal(whole, &got); err != nil {
			t.Fatalf("%q gave %s: %v", s, whole, err)
		}
		if want := string([]rune(s)); got != want {
			t.Fatalf("%q means %q, want %q", s, got, want)
		}
		if max < 0 {
			max = -(max + 1)
		}
		for _, b := range [][]byte{whole, principal.AppendQuoted(nil, s, max)} {
			if !utf8.Valid(b) || !json.Valid(b) {
				t.Fatalf("%q cut at %d gave %q", s, max, b)
			}
			for _, r := range string(b) {
				if !visible.Printable(r) {
					t.Fatalf("%q gave %q, which cannot be shown", s, b)
				}
			}
		}
	})
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested},
			principal.Fact{Name: "exe", Value: "/usr/bin/node", Grade: principal.Observed})
	}
}

// FuzzParse: the parts of a name that is accepted make the same name, and it has only
// printable characters.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"uid:0", "token:a", "loopback:uid=1", "loopback:unknown", "oauth:https://i#s", "spawn:x", ":", "uid:01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		kind, rest, err := principal.Parse(name)
		if err != nil {
			return
		}
		if kind+":"+rest != name || !principal.New(name).Valid() {
			t.Fatalf("%q parsed as %q %q", name, kind, rest)
		}
		for _, r := range name {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q was taken", name)
			}
		}
	})
}

// TestOnlyWhatMustBeIsEscaped: a replacement character in the text is kept, a byte that
// is not UTF-8 is escaped as one, and a text of exactly max bytes is not cut.
func TestOnlyWhatMustBeIsEscaped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\uFFFD": `"\uFFFD"`, "a\xffb": `"a\ufffdb"`, " ~": `" ~"`, "12345678": `"12345678"`, "123456789": `"12345678…[cut]"`,
	} {
		if in == "\uFFFD" {
			want = "\"\uFFFD\""
		}
		if got := string(principal.AppendQuoted(nil, in, 8)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
