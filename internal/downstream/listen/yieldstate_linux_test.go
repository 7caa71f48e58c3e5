package listen

import (
	"context"
	"testing"
)

// The connections that give way are those on which no caller is served. Each of them can serve one
// or give way, and not both; a connection that has ended is in no table.
func TestAConnectionServesOrGivesWay(t *testing.T) {
	t.Parallel()
	const all = 40 // more than giveWay looks at
	for _, served := range []int{0, 1, all / 2, all - 1, all} {
		l := newListener(Spec{Network: "tcp"}, Options{MaxConns: all}.withDefaults())
		conns := make([]*conn, all)
		for i := range conns {
			conns[i] = &conn{Conn: arrival{}}
			conns[i].origin.Listener, conns[i].origin.Owner = l, OwnerSame
			if reason := l.take(conns[i]); reason != "" {
				t.Fatal(reason)
			}
		}
		serve := func(c *conn) bool { return Serve(context.WithValue(t.Context(), originKey{}, c)) }
		for _, c := range conns[:served] {
			if !serve(c) || serve(c) {
				t.Error("a caller is refused, or served twice")
			}
		}
		for range all - served {
			if !l.yielding.giveWay(seat{}, l.seats.count) {
				t.Error("no connection gives way")
			}
		}
		if l.yielding.giveWay(seat{}, l.seats.count) || l.Open() != served {
			t.Errorf("%d of %d are open", l.Open(), served)
		}
		for i, c := range conns {
			if c.isEnded() != (i >= served) || serve(c) {
				t.Errorf("%d of %d: ended %v", i, served, c.isEnded())
			}
			c.end()
		}
		if n := len(l.yielding.conns); n > 0 {
			t.Errorf("%d are in the table", n)
		}
	}
}

// A connection that was taken over and given back gives way again.
func TestAConnectionThatIsGivenBackGivesWay(t *testing.T) {
	t.Parallel()
	l, c := oneAccepted(t)
	if !Serve(context.WithValue(t.Context(), originKey{}, c)) || l.yields() != 0 {
		t.Fatal("not served")
	}
	if c.back(nil); l.yields() != 1 {
		t.Errorf("%d give way", l.yields())
	}
}
