//go:build unix

package process

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ear collects lines.
type ear struct {
	mu    sync.Mutex
	lines []string
}

func (e *ear) hear(l string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, l)
}

func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.lines...)
}

func TestLineSink(t *testing.T) {
	t.Parallel()
	var e ear
	var withheld atomic.Int64
	now := time.Unix(1000, 0)
	s := lineSink{deliver: e.hear, now: func() time.Time { return now }, withheld: &withheld}
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, e.all()); diff != "" {
			t.Fatal(diff)
		}
		e.lines = nil
	}
	s.write([]byte("a"))
	s.write([]byte("b\nc"))
	s.write([]byte("\n\nd\r\n"))
	expect("ab", "c", "", "d")

	exact := strings.Repeat("e", maxLine)
	s.write([]byte(exact + "\n"))
	expect(exact)
	s.write([]byte(exact + "f"))
	expect(exact + " (cut)")
	s.write([]byte("more of it\nnext\n"))
	expect("next")

	for range linesPerMinute {
		s.write([]byte("x\n"))
	}
	e.lines = nil
	s.write([]byte("y\nz\n"))
	expect()
	now = now.Add(time.Minute)
	s.write([]byte("w\n"))
	if lines := e.all(); lines[0] != fmt.Sprintf("(%d further lines withheld)", withheld.Load()) || lines[1] != "w" || withheld.Load() < 2 {
		t.Fatalf("%q, %d withheld", lines, withheld.Load())
	}
}

// A line is shown with everything escaped that a terminal would act on or hide.
func TestLinesOfAServerAreEscaped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain — ünï 漢字 🙂\n":          "plain — ünï 漢字 🙂",
		"tab\tcr\r\n":                 `tab\tcr`,
		"\r\x00\x1b]0;title\x07\n":    `\u000d\u0000\u001b]0;title\u0007`,
		"\x7f\xff\xc3\n":              "\\u007f\ufffd\ufffd",
		"\u0085\u009b31m\n":           `\u0085\u009b31m`,
		"\u202eevil\u2066\n":          `\u202eevil\u2066`,
		"zero\u200bwidth\ufeff\n":     `zero\u200bwidth\ufeff`,
		"filler\u3164a\ufe00\n":       `filler\u3164a\ufe00`,
		"tag\U000e0041\n":             `tag\udb40\udc41`,
		"\ufffd is a character too\n": "\ufffd is a character too",
	} {
		var got string
		s := lineSink{deliver: func(line string) { got = line }, now: time.Now, withheld: new(atomic.Int64)}
		s.write([]byte(in))
		if got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
