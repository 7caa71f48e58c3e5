package upstream

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestAnyNumberOfPrintedLinesIsSkipped: a server that prints more lines than invalid messages are
// tolerated, before and between its answers, is served.
func TestAnyNumberOfPrintedLinesIsSkipped(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	c := dialLegacy(t, s, nil)
	for n := 1; n < 100*maxBad; n *= 7 {
		before := s.Counts().Garbage
		ctx, cancel := context.WithCancel(testContext(t))
		go c.Call(ctx, tool("raw", `"line":`+quote(strings.Repeat("INFO a request\n", n))), nil) // it has no answer
		eventually(t, "the lines", func() bool { return s.Counts().Garbage-before >= int64(n) })
		cancel()
		mustCall(t, c, tool("echo"), nil)
	}
}

// TestPrintedLinesAreCountedByTheMinute: what a server prints without an answer ends its connection
// if it is more than a message may have in a minute, empty lines included, and not if it takes longer.
func TestPrintedLinesAreCountedByTheMinute(t *testing.T) {
	t.Parallel()
	const most = 1000
	for _, line := range []string{"", "x", strings.Repeat("x", 99)} {
		s := &Server{def: Definition{MaxMessage: most}, log: discard}
		in := &intake{stream: &stream{srv: s}}
		many := most / (len(line) + 1)
		for minute := range 5 {
			for n := range many {
				if err := in.refused([]byte(line)); err != nil {
					t.Fatalf("%q: minute %d, line %d: %v", line, minute, n, err)
				}
			}
			in.since = in.since.Add(-badTime - time.Second)
		}
		in.since = time.Now()
		in.badSize = most
		if in.refused([]byte(line)) == nil {
			t.Errorf("%q: it has no end", line)
		}
	}
}
