package sse

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// Step returns after each empty line, and Rest releases the buffer only between two of them.
func TestStepAndRest(t *testing.T) {
	t.Parallel()
	const stream = ": comment\n\nevent: nothing\n\ndata: a\n\nid: 1\n\n"
	for name, tt := range map[string]struct {
		r    io.Reader
		rest bool // after each line
	}{
		"a line at a time": {iotest.OneByteReader(strings.NewReader(stream)), true},
		"all at once":      {strings.NewReader(stream), false},
	} {
		e := NewReader(tt.r, 100)
		for i, want := range []string{"-", "-", "a ", " 1"} {
			got := "-"
			ev, ok, err := e.Step()
			if ok {
				got = string(ev.Data) + " " + ev.ID
			}
			if err != nil || got != want {
				t.Errorf("%s: step %d is %q, %v", name, i, got, err)
			}
			if i < 3 && (e.Rest() != tt.rest || tt.rest != (e.buf == nil)) {
				t.Errorf("%s: after step %d the buffer has %d bytes", name, i, len(e.buf))
			}
		}
		if _, _, err := e.Step(); err != io.EOF || e.Rest() {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}
