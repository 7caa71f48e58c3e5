package pin

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCleanTakesOutWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, in, want string
		n              int
	}{
		{"plain", "Adds a note.\n\t- \"quoted\" é 漢字 🙂", "Adds a note.\n\t- \"quoted\" é 漢字 🙂", 0},
		{"C0 and delete", "a\x00b\x07c\rd\x7fe", "abcde", 4},
		{"C1", "a\u0085b\u008fc", "abc", 2},
		{"colour", "a\x1b[31mred\x1b[0m", "ared", 2},
		{"colour by C1", "a\u009b1;31mred", "ared", 1},
		{"cursor", "x\x1b[2J\x1b[1;1Hy", "xy", 2},
		{"title", "a\x1b]0;owned\x07b\x1b]8;;http://evil\x1b\\c", "abc", 2},
		{"title that never ends", "a\x1b]0;the rest stays", "a0;the rest stays", 1},
		{"device string by C1", "a\u0090q\u009cb", "ab", 1},
		{"charset", "a\x1b(0b", "ab", 1},
		{"escape alone", "a\x1b", "a", 1},
		{"sequence that is cut", "a\x1b[31", "a31", 1},
		{"direction", "a\u202eb\u2066c\u2069d\u200fe\u061cf", "abcdef", 5},
		{"zero width", "e\u200bv\u200ci\u200dl\u2060\ufeff", "evil", 5},
		{"soft hyphen and fillers", "a\u00adb\u3164c\u115fd\uffa0", "abcd", 4},
		{"tags", "ok\U000E0001\U000E0068\U000E0069\U000E007F", "ok", 4},
		{"a selector after a character", "❤\ufe0f x", "❤\ufe0f x", 0},
		{"a message in selectors", "❤\ufe0f\ufe01\ufe02\ufe03", "❤\ufe0f", 3},
		{"a selector at the start", "\ufe0fx", "x", 1},
		{"supplementary selectors", "x\U000E0100\U000E01EF", "x", 2},
		{"line separators", "a\u2028b\u2029c", "abc", 2},
		{"annotation", "a\ufff9b\ufffbc", "abc", 2},
		{"replacement character", "a\ufffdb", "a\ufffdb", 0},
	} {
		if got, n := Clean(c.in); got != c.want || n != c.n {
			t.Errorf("%s: %q %d, want %q %d", c.what, got, n, c.want, c.n)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31mred\u202e\U000E0041❤\ufe0f\ufe0f")
	f.Add("\x1b\x1b]]\x07\u009b\u009c")
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "")
		got, n := Clean(s)
		if !utf8.ValidString(got) || (n == 0) != (got == s) || len(got) > len(s) {
			t.Fatalf("%q became %q, %d", s, got, n)
		}
		if again, more := Clean(got); more != 0 || again != got {
			t.Fatalf("%q became %q, and then %q", s, got, again)
		}
		for _, r := range got {
			if hidden(r) {
				t.Fatalf("%q holds %U still", got, r)
			}
		}
	})
}

func TestWhatLiesInAnotherServersPrefix(t *testing.T) {
	t.Parallel()
	servers := []string{"notes", "my-files", "agent"}
	for name, want := range map[string]string{
		"notes__add": "notes", "Notes__add": "notes", "nоtes__add": "notes", "my-files__": "my-files", "agent__send": "agent",
		"doorward://notes/file:///x": "notes", "DOORWARD://NOTES/x": "notes",
		"add": "", "notes_add": "", "own__add": "", "other__add": "", "doorward://own/x": "", "doorward://other/x": "", "__notes": "", "file:///notes__add": "",
	} {
		if got, _ := trespasses(name, "own", servers); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
