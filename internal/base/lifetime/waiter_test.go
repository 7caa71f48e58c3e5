package lifetime

import (
	"context"
	"slices"
	"testing"
)

// A context keeps nothing for those that were derived from it and have ended, in whatever order.
func TestEndedContextsAreForgotten(t *testing.T) {
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"of this package": New, "of package context": context.WithCancel,
	} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
			ctx, end := New(t.Context())
			var ends []context.CancelFunc
			for range order {
				_, cancel := derive(ctx)
				ends = append(ends, cancel)
			}
			for i, which := range order {
				ends[which]()
				if n := waiters(ctx.(*life)); n != len(order)-i-1 {
					t.Errorf("%s, ended in the order %v: %d kept after %d", name, order, n, i+1)
				}
			}
			end()
		}
	}
}

func waiters(l *life) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*waiter
	for w := l.first; w != nil && !slices.Contains(all, w); w = w.next {
		all = append(all, w)
	}
	return len(all)
}
