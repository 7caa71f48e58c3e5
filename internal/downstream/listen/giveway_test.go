package listen

import (
	"fmt"
	"net/netip"
	"testing"
)

// A connection of the daemon's own user or of a trusted proxy gives way to one of these alone,
// however many addresses other callers have. Those of other callers give way to all.
func TestTheOwnersConnectionsGiveWayToTheOwnersAlone(t *testing.T) {
	t.Parallel()
	const most, more = 40, 10
	own, other := seat{}, remoteSeat(netip.MustParseAddr("192.0.2.1"))
	for _, tc := range []struct {
		own  int    // connections of the owner that rest; another caller has the other ones
		come string // the network of the callers that come
		want int    // connections of the owner afterwards
	}{
		{most, "10.0.0", most},
		{most, "198.51.100", most},
		{most - 1, "198.51.100", most - 1},
		{1, "198.51.100", 1},
		{1, "10.0.0", 1 + more},
	} {
		t.Run(fmt.Sprintf("%d of the owner, from %s", tc.own, tc.come), func(t *testing.T) {
			t.Parallel()
			l := newListener(Spec{Network: "tcp", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, Options{MaxConns: most}.withDefaults())
			go func() {
				for range l.ready {
				}
			}()
			defer close(l.ready)
			for i := range most {
				at := own
				if i >= tc.own {
					at = other
				}
				c := &conn{Conn: arrival{}, seat: &at}
				c.origin.Listener = l
				l.seats.take(at)
				l.yielding.add(c)
			}
			for i := range more {
				l.admit(arrival{remote: netip.MustParseAddrPort(fmt.Sprintf("%s.%d:1", tc.come, i))})
			}
			if got := l.seats.count(own); got != tc.want || l.Open() != most {
				t.Errorf("%d of %d connections are the owner's, want %d", got, l.Open(), tc.want)
			}
		})
	}
}
