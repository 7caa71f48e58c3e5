package listen

import (
	"sync"
	"testing"
)

// While a connection gives way, no connection is refused, however many come at the same time.
func TestConnectionsThatComeTogetherAreAllAdmitted(t *testing.T) {
	t.Parallel()
	const most, together = 64, 8
	l := newListener(Spec{Network: "tcp"}, Options{MaxConns: most}.withDefaults())
	come := func() string {
		c := &conn{Conn: arrival{}}
		c.origin.Listener, c.origin.Owner = l, OwnerSame
		return l.take(c)
	}
	for range most {
		if reason := come(); reason != "" {
			t.Fatal(reason)
		}
	}
	var all sync.WaitGroup
	for range together {
		all.Go(func() {
			for range 5000 {
				if reason := come(); reason != "" {
					t.Errorf("%s, with %d connections that give way", reason, most)
					return
				}
			}
		})
	}
	all.Wait()
	if l.Open() != most {
		t.Errorf("%d are open, want %d", l.Open(), most)
	}
}
