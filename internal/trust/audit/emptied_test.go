package audit

import (
	"sync"
	"testing"
)

// TestAGroupIsUsedAgain: with its buffers, unless they are large; another group gets them
// while an appender may read the result of the first.
func TestAGroupIsUsedAgain(t *testing.T) {
	t.Parallel()
	for size, kept := range map[int]bool{maxKept: true, maxKept + 1: false} {
		for _, awaited := range []bool{false, true} {
			g := newGroup(new(sync.Mutex))
			g.text = make([]byte, 0, size)
			g.add(body{text: []byte("a")}, false)
			g.done, g.err, g.first, g.front, g.awaited = true, ErrUnavailable, 7, 1, awaited
			next := g.emptied()
			if len(next.items) > 0 || len(next.text) > 0 || next.size+next.front != 0 || next.done || next.awaited || next.err != nil || next.first != 0 || next.result.L != g.result.L {
				t.Errorf("%d bytes, awaited %v: it is not empty: %+v", size, awaited, next)
			}
			if (cap(next.text) == size) != kept || (cap(next.items) > 0) != kept {
				t.Errorf("%d bytes, awaited %v: the buffers have %d and %d", size, awaited, cap(next.text), cap(next.items))
			}
			if awaited && (next == g || !g.done || g.err == nil || g.first != 7) {
				t.Errorf("%d bytes: the result that an appender waits for is lost", size)
			}
		}
	}
}
