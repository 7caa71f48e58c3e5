package plaintext

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in, want string
		n              int
	}{
		{"plain text stays", "a line\n\tand another · é 漢 👍", "a line\n\tand another · é 漢 👍", 0},
		{"CRLF is one line feed", "a\r\nb\r\n", "a\nb\n", 2},
		{"a lone return goes", "a\rb", "ab", 1},
		{"controls go", "a\x00\x01\x07\x7fb\u0085c", "abc", 5},
		{"a byte that is no UTF-8", "a\xffb\x9bc", "a\ufffdb\ufffdc", 2},
		{"a colour counts once", "\x1b[31mred\x1b[0m", "red", 2},
		{"cursor", "x\x1b[2J\x1b[1;1Hy", "xy", 2},
		{"a title counts once", "\x1b]0;title\x07x\x1b]8;;http://e\x1b\\y", "xy", 2},
		{"C1 forms of the same", "\u009b31mred\u009d0;t\u009cx", "redx", 2},
		{"a device string by C1", "a\u0090q\u009cb", "ab", 1},
		{"a sequence without an end takes its introducer alone", "\x1b]0;all of\nthis stays", "0;all of\nthis stays", 1},
		{"a sequence cannot swallow the next line", "\x1b[12\nx", "12\nx", 1},
		{"what is left of nested ones is harmless", "\x1b\x1b[31m[31mx", "[31mx", 2},
		{"short escapes", "a\x1bcb\x1b(Bc\x1b", "abc", 3},
		{"direction marks go", "a\u202eb\u2066c\u200fd\u061ce", "abcde", 4},
		{"zero width goes", "a\u200bb\u2060c\u2064d\ufeffe", "abcde", 4},
		{"joiners between letters that do not join go", "e\u200bv\u200ci\u200dl\u2060\ufeff", "evil", 5},
		{"fillers go", "a\u00adb\u3164c\u115fd\uffa0", "abcd", 4},
		{"tags and selectors of the last plane go", "a\U000E0041\U000E007Fb\U000E0100", "ab", 3},
		{"a flag made of tags is its first character", "🏴\U000E0067\U000E0062\U000E007F", "🏴", 3},
		{"one selector stays", "❤\ufe0f\ufe0f\ufe01\ufe02", "❤\ufe0f", 3},
		{"a selector at the start", "\ufe0fx", "x", 1},
		{"a selector after a letter", "x\ufe0f漢\ufe00", "x漢", 2},
		{"one joiner stays", "👩\u200d\u200d\u200d💻", "👩\u200d💻", 2},
		{"a joiner at the end", "👩\u200d", "👩", 1},
		{"one non-joiner stays", "می\u200c\u200cخ", "می\u200cخ", 1},
		{"a non-joiner at the end of a word", "می\u200c x", "می x", 1},
		{"viramas without a letter", "\u094d\u200d\u094d\u200c", "\u094d\u094d", 2},
		{"line separators", "a\u2028b\u2029c", "abc", 2},
		{"annotation", "a\ufff9b\ufffbc", "abc", 2},
		{"a return hidden before a line feed", "a\r\u200b\nb", "a\nb", 2},
	} {
		if got, n := Clean(c.in); got != c.want || n != c.n {
			t.Errorf("%s: Clean(%+q) = %+q, %d, want %+q, %d", c.name, c.in, got, n, c.want, c.n)
		}
	}
}

func TestCleanLineIsOneLine(t *testing.T) {
	t.Parallel()
	if got, n := CleanLine("a\r\nb\tc\u2028d\u2029e\vf"); got != "a b c d ef" || n != 2 {
		t.Errorf("%q %d", got, n)
	}
}

// Clean takes linear time for texts that consist only of the beginnings of
// sequences. The bound of two minutes is far above that, and far below a quadratic time.
func TestCleanIsLinear(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	for _, s := range []string{"\x1b]", "\x1b[", "\x1b(", "\x1b[1;", "\u009d", "\x1bP\x1b", "\x1b]x\n", "\u200d", "👩\u200d"} {
		if _, n := Clean(strings.Repeat(s, 1<<20/len(s))); n == 0 {
			t.Errorf("%q: nothing was taken out", s)
		}
	}
	if d := time.Since(begin); d > 2*time.Minute {
		t.Errorf("nine megabytes took %v", d)
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		most int
		clip string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "ab…"}, {"ééé", 5, "é…"}, {"ééé", 4, "…"},
		{"👍👍", 7, "👍…"}, {"abc", 0, "…"}, {"", 0, ""}, {"a\xff\xff\xff", 3, "…"},
	} {
		if got := Clip(c.in, c.most); got != c.clip {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.in, c.most, got, c.clip)
		}
	}
}

func TestPrinting(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{ // Text, Line
		"a\n\tb":           {"a\n\tb", `a\n\tb`},
		"a\r\nb\rc":        {"a\nb\\u000dc", `a\u000d\nb\u000dc`},
		"\x1b[2J\u009b":    {`\u001b[2J\u009b`, `\u001b[2J\u009b`},
		"\xff\u3164":       {"\ufffd\\u3164", "\ufffd\\u3164"},
		"\ue000\ufffe\x00": {`\ue000\ufffe\u0000`, `\ue000\ufffe\u0000`},
	} {
		if got := [2]string{Text(in), Line(in)}; got != want {
			t.Errorf("%q is printed as %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"": `""`, "a b": "a b", "a\u3000b": `"a\u3000b"`, "a\ufe0f": `"a\ufe0f"`, "a\"\n": `"a\"\n"`, "\xff": `"\xff"`} {
		if got := Name(in); got != want {
			t.Errorf("Name(%q) = %s, want %s", in, got, want)
		}
	}
}

// JSON that passes Printer decodes to the same value and has no hidden characters.
func TestPrintedJSONIsTheSameJSON(t *testing.T) {
	t.Parallel()
	all := unseen()
	for range 200 {
		var s strings.Builder
		for range 20 {
			s.WriteRune(all[rand.IntN(len(all))])
			s.WriteString(carriers[rand.IntN(len(carriers))])
		}
		var raw, printed bytes.Buffer
		e := json.NewEncoder(&raw)
		e.SetEscapeHTML(false)
		if err := e.Encode([]string{s.String()}); err != nil {
			t.Fatal(err)
		}
		if n, err := (Printer{&printed}).Write(raw.Bytes()); n != raw.Len() || err != nil {
			t.Fatal(n, err)
		}
		var back []string
		if err := json.Unmarshal(printed.Bytes(), &back); err != nil || back[0] != s.String() {
			t.Fatalf("%+q came back as %+q: %v", s.String(), back, err)
		}
		if _, n := Clean(printed.String()); n != 0 {
			t.Fatalf("%+q was printed", printed.String())
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestPrinterPassesErrorsOn(t *testing.T) {
	t.Parallel()
	if n, err := (Printer{full{}}).Write([]byte("\x1b")); n != 0 || err == nil {
		t.Errorf("%d %v", n, err)
	}
}
