package agent

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestCleanTakesOutWhatNobodySees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in, want string
		n              int
	}{
		{"plain text stays", "a line\n\tand another · é 漢 👍", "a line\n\tand another · é 漢 👍", 0},
		{"CRLF is one line feed", "a\r\nb\r\n", "a\nb\n", 2},
		{"a lone return goes", "a\rb", "ab", 1},
		{"controls go", "a\x01\x02\x7fb\u0085c", "abc", 4},
		{"a colour counts once", "\x1b[31mred\x1b[0m", "red", 2},
		{"a title counts once", "\x1b]0;title\x07x\x1b]8;;http://e\x1b\\y", "xy", 2},
		{"C1 forms of the same", "\u009b31mred\u009d0;t\u009cx", "redx", 2},
		{"a sequence without an end takes its introducer alone", "\x1b]0;all of\nthis stays", "0;all of\nthis stays", 1},
		{"a sequence cannot swallow the next line", "\x1b[12\nx", "12\nx", 1},
		{"what is left of nested ones is harmless", "\x1b\x1b[31m[31mx", "[31mx", 2},
		{"short escapes", "a\x1bcb\x1b(Bc\x1b", "abc", 3},
		{"direction marks go", "a\u202eb\u2066c\u200fd\u061ce", "abcde", 4},
		{"zero width goes", "a\u200bb\u2060c\u2064d\ufeffe", "abcde", 4},
		{"tags and variation selectors of the last plane go", "a\U000E0041\U000E007Fb\U000E0100", "ab", 3},
		{"joiners of emoji stay", "👩\u200d💻 a\u200cb", "👩\u200d💻 a\u200cb", 0},
		{"a return hidden before a line feed", "a\r\u200b\nb", "a\nb", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, n, err := Clean(c.in)
			if got != c.want || n != c.n || err != nil {
				t.Errorf("Clean(%q) = %q, %d, %v, want %q, %d", c.in, got, n, err, c.want, c.n)
			}
		})
	}
}

func TestCleanRefusesWhatTwoReadersWouldReadDifferently(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a\x00b", "\xff", "a\xc3", "\xed\xa0\x80"} {
		if _, _, err := Clean(s); err == nil {
			t.Errorf("%q was taken", s)
		}
		if _, _, err := CleanLine(s); err == nil {
			t.Errorf("%q was taken for a line", s)
		}
	}
}

func TestCleanLineIsOneLine(t *testing.T) {
	t.Parallel()
	got, n, err := CleanLine("a\r\nb\tc\u2028d\u2029e\vf")
	if got != "a b c d ef" || n != 2 || err != nil {
		t.Errorf("%q %d %v", got, n, err)
	}
}

// A text of nothing but beginnings costs no more than another one.
func TestCleanIsLinear(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	for _, s := range []string{"\x1b]", "\x1b[", "\x1b(", "\x1b[1;", "\u009d", "\x1bP\x1b", "\x1b]x\n"} {
		if _, n, err := Clean(strings.Repeat(s, 1<<20/len(s))); n == 0 || err != nil {
			t.Errorf("%q: %d %v", s, n, err)
		}
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("seven megabytes took %v", d)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"plain", "a\r\nb", "\x1b[31m", "\x1b]0;x", "\u009b1", "\u202e", "\U000E0041", "\x1b\x1b[[", "\r\u200b\n", "\x1b\u200b[31m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		clean, n, err := Clean(s)
		if err != nil {
			if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
				t.Fatalf("%q was refused", s)
			}
			return
		}
		if strings.ContainsFunc(clean, unwanted) || !utf8.ValidString(clean) {
			t.Fatalf("%q became %q", s, clean)
		}
		if again, m, err := Clean(clean); again != clean || m != 0 || err != nil {
			t.Fatalf("%q is not clean: %q, %d, %v", clean, again, m, err)
		}
		if (n == 0) != (clean == s) {
			t.Fatalf("%d of %q taken out, which became %q", n, s, clean)
		}
		if line, _, _ := CleanLine(s); strings.ContainsAny(line, "\n\t\r\u2028\u2029\u0085") {
			t.Fatalf("%q became the line %q", s, line)
		}
	})
}
