package listen

import (
	"net"
	"net/netip"
	"testing"
)

// arrival is a connection from an address.
type arrival struct {
	net.Conn
	remote netip.AddrPort
}

func (a arrival) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(a.remote) }
func (a arrival) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }
func (arrival) Close() error           { return nil }

// Connections of a trusted proxy are those of many clients: the limit of one address does not
// count them, and the limit of the listener does.
func TestATrustedProxyIsNotLimitedAsOneClient(t *testing.T) {
	t.Parallel()
	l := newListener(Spec{Network: "tcp", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, Options{MaxConns: 10, MaxPerRemote: 2}.withDefaults())
	go func() {
		for range l.ready {
		}
	}()
	defer close(l.ready)
	for _, tc := range []struct {
		from              string
		come, open, total int // the total of the listener afterwards
	}{
		{"192.0.2.1:1", 5, 2, 2},
		{"10.1.2.3:1", 5, 5, 7},
		{"[::ffff:10.1.2.3]:1", 1, 1, 8},
		{"192.0.2.2:1", 5, 2, 10},
		{"10.1.2.3:1", 5, 0, 10},
	} {
		before := l.Open()
		for range tc.come {
			l.admit(arrival{remote: netip.MustParseAddrPort(tc.from)})
		}
		if got := l.Open() - before; got != tc.open || l.Open() != tc.total {
			t.Errorf("%s: %d open, %d in total; want %d and %d", tc.from, got, l.Open(), tc.open, tc.total)
		}
	}
}
