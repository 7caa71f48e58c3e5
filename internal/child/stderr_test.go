package child

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

func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain — ünï 漢字 🙂":          "plain — ünï 漢字 🙂",
		"tab\tcr\r":                 `tab\tcr`,
		"\r\x00\x1b]0;title\x07":    `\x0d\x00\x1b]0;title\x07`,
		"\x7f\xff\xc3":              `\x7f\xff\xc3`,
		"\u0085\u009b31m":           `\u0085\u009b31m`,
		"\u202eevil\u2066":          `\u202eevil\u2066`,
		"zero\u200bwidth\ufeff":     `zero\u200bwidth\ufeff`,
		"tag\U000e0041":             `tag\U000e0041`,
		"a\u2028b\u2029c\u00a0d":    `a\u2028b\u2029c\u00a0d`,
		"\ufffd is a character too": "\ufffd is a character too",
	} {
		if got := escape([]byte(in)); got != want {
			t.Errorf("escape(%q) = %q, want %q", in, got, want)
		}
	}
}
