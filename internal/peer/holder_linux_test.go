package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
)

// loopbackPair is an accepted connection whose far end a helper process holds.
func loopbackPair(t *testing.T, ln net.Listener, mode string) (local, remote netip.AddrPort) {
	t.Helper()
	start(t, nil, mode, "tcp", ln.Addr().String()).line(t, "connected")
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())
}

func TestAServersLoopbackSocketIsFound(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	self := int32(os.Getpid())

	local, remote := loopbackPair(t, ln, "dial")
	if held, err := HeldBelow(local, remote, self, 1000); !held || err != nil {
		t.Errorf("a child's socket: %v, %v", held, err)
	}
	if held, err := HeldBelow(local, remote, int32(os.Getppid())+1<<22, 1000); held || err != nil {
		t.Errorf("below a process that is not there: %v, %v", held, err)
	}
	if _, err := HeldBelow(local, remote, self, 0); !errors.Is(err, ErrTooMany) {
		t.Errorf("beyond the limit: %v, want ErrTooMany", err)
	}

	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ours, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if held, err := HeldBelow(addrOf(ours.LocalAddr()), addrOf(ours.RemoteAddr()), self, 1000); held || err != nil {
		t.Errorf("a socket of our own: %v, %v", held, err)
	}
	if _, err := HeldBelow(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2"), self, 1000); !errors.Is(err, ErrNotFound) {
		t.Errorf("no socket: %v, want ErrNotFound", err)
	}
}

func BenchmarkHeldBelow(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ours, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer ours.Close()
	for b.Loop() {
		if _, err := HeldBelow(addrOf(ours.LocalAddr()), addrOf(ours.RemoteAddr()), int32(os.Getpid()), 1000); err != nil {
			b.Fatal(fmt.Errorf("looking: %w", err))
		}
	}
}
