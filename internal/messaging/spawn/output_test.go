package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// resultOf is the result of an agent that printed all in pieces, with most bytes of it kept
// below state.
func resultOf(state, all string, most int64) (string, []mail.Ref) {
	a := &agent{result: true, output: newOutput(state, "s1", most)}
	for len(all) > 0 {
		n := min(len(all), 5003)
		a.output.add([]byte(all[:n]))
		all = all[n:]
	}
	return new(Options).result(a)
}

// A result is the end of the output, from a whole character on, wherever its bounds are.
func TestAResultBeginsWithAWholeCharacter(t *testing.T) {
	t.Parallel()
	for _, letter := range []string{"a", "é", "漢", "😀"} {
		for after := range 4 {
			for _, size := range []int{10, resultBytes - 4, resultBytes, resultBytes + 1, 2*resultBytes + 3, 5*resultBytes + 1} {
				all := strings.Repeat(letter, size/len(letter)) + "end"[:after]
				got, _ := resultOf(t.TempDir(), all, 1<<20)
				if !strings.HasSuffix(all, got) || !utf8.ValidString(got) || len(got) < min(len(all), resultBytes-3) {
					t.Errorf("of %d bytes %q and %d more: %d bytes from %.10q", len(all), letter, after, len(got), got)
				}
			}
		}
	}
}

// A result keeps the text that follows bytes that are not text.
func TestAResultHasTheTextAmongOtherBytes(t *testing.T) {
	t.Parallel()
	for all, want := range map[string]string{
		"":                        "",
		"\n":                      "\n",
		"no line end":             "no line end",
		"Gr\xfc\xdfe\n":           "Gr\ufffd\ufffde\n",
		"one\x00two":              "onetwo",
		"\x1b[31mred\x1b[0m\r\n":  "red\n",
		"cut off: \xe6\xbc":       "cut off: \ufffd\ufffd",
		strings.Repeat("\x00", 9): notText,
	} {
		if got, _ := resultOf(t.TempDir(), all, 1<<20); got != want {
			t.Errorf("%q: %q; want %q", all, got, want)
		}
	}
}

// A result whose output is not kept whole says so. One that is complete, or comes with the
// whole output, says nothing of it.
func TestAResultSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(nowhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		state             string
		size, most, files int
		want              string
	}{
		{t.TempDir(), resultBytes, 1 << 20, 0, ""},
		{t.TempDir(), resultBytes + 1, 1 << 20, 1, ""},
		{t.TempDir(), 1 << 20, 1 << 20, 1, ""},
		{t.TempDir(), 1<<20 + 1, 1 << 20, 1, fmt.Sprintf(wholeCut, 1<<20+1, 1<<20)},
		{t.TempDir(), 1 << 20, 100, 1, fmt.Sprintf(wholeCut, 1<<20, 100)},
		{nowhere, resultBytes, 1 << 20, 0, ""},
		{nowhere, resultBytes + 1, 1 << 20, 0, fmt.Sprintf(wholeCut, resultBytes+1, 0)},
	} {
		got, files := resultOf(c.state, strings.Repeat("x", c.size), int64(c.most))
		note, _, cut := strings.Cut(got, "\n")
		if cut {
			note += "\n"
		} else {
			note = ""
		}
		if note != c.want || len(files) != c.files || len(got) > resultBytes {
			t.Errorf("%d bytes with %d kept: %q, %d files, %d bytes; want %q", c.size, c.most, note, len(files), len(got), c.want)
		}
	}
}
