package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/downstream/peer"
	"golang.org/x/sys/unix"
)

// The kernel's list of listening sockets agrees with the bind table in every row.
func TestTheBindTableOnRealPorts(t *testing.T) {
	t.Parallel()
	set := Credential{Set: true}
	for _, tc := range []struct {
		addr     string
		c        Credential
		bound    string // the literal in the kernel's list; "" for none
		enforced bool
	}{
		{"127.0.0.1:%d", Credential{}, "127.0.0.1", false},
		{"127.0.0.1:%d", set, "127.0.0.1", true},
		{"127.3.2.1:%d", Credential{}, "127.3.2.1", false},
		{"[::1]:%d", Credential{}, "::1", false},
		{"localhost:%d", Credential{}, "127.0.0.1", false},
		{"0.0.0.0:%d", Credential{}, "", false},
		{"0.0.0.0:%d", set, "0.0.0.0", true},
		{"[::]:%d", Credential{}, "", false},
		{"[::]:%d", set, "::", true},
		{":%d", Credential{}, "", false},
		{":%d", set, "::", true},
		{"[::ffff:127.0.0.1]:%d", Credential{}, "", false},
		{"[::ffff:127.0.0.1]:%d", set, "127.0.0.1", true},
		{"[::1%%lo]:%d", Credential{}, "", false},
		{"[::1%%lo]:%d", set, "::1", true},
		{"127.1:%d", Credential{}, "", false},
		{"127.1:%d", set, "", false},
		{"0x7f000001:%d", set, "", false},
		{"2130706433:%d", Credential{}, "", false},
		{"name.invalid:%d", Credential{}, "", false},
		{"name.invalid:%d", set, "", false},
		{"192.0.2.1:%d", set, "", false}, // not an address of this machine
	} {
		port := freePort(t)
		addr := fmt.Sprintf(tc.addr, port)
		t.Run(addr+fmt.Sprint(tc.c.Set), func(t *testing.T) {
			t.Parallel()
			l, err := Open(t.Context(), Spec{Network: "tcp", Addr: addr}, tc.c, Options{})
			ends := listening(t, port)
			if tc.bound == "" {
				var refused *RefusedError
				if !errors.As(err, &refused) || refused.Addr != addr || len(ends) != 0 {
					t.Fatalf("%v, and %v is bound", err, ends)
				}
				return
			}
			if err != nil {
				if peer.NoSuchAddress(err) {
					t.Skipf("this machine has no such address: %v", err)
				}
				t.Fatal(err)
			}
			defer l.Close()
			if l.AuthEnforced != tc.enforced {
				t.Errorf("enforced %v", l.AuthEnforced)
			}
			found := false
			for _, end := range ends {
				found = found || end.Addr() == netip.MustParseAddr(tc.bound)
				if l.Loopback && !end.Addr().IsLoopback() {
					t.Errorf("called loopback and listens on %v", end)
				}
			}
			if !found {
				t.Errorf("bound %v, want %s", ends, tc.bound)
			}
			l.Close()
			// Not immediately: a process that another test starts holds all
			// descriptors until its exec.
			eventually(t, "the port is free after Close", func() bool { return len(listening(t, port)) == 0 })
		})
	}
}

func TestLocalhostBindsAllItsAddressesOnOnePort(t *testing.T) {
	t.Parallel()
	a := address{loopback: true, ends: []netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("127.0.0.9:0"), netip.MustParseAddrPort("[::1]:0"),
	}}
	ls, err := bindAll(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ls)
	ends := boundEnds(ls)
	for _, end := range ends {
		if end.Port() == 0 || end.Port() != ends[0].Port() {
			t.Errorf("ports differ: %v", ends)
		}
	}

	// An address that the machine lacks is left out; one in use is an error.
	port := freePort(t)
	withMissing := address{port: port, ends: []netip.AddrPort{
		netip.MustParseAddrPort("192.0.2.1:0"), netip.MustParseAddrPort("127.0.0.1:0"),
	}}
	ls2, err := bindAll(t.Context(), withMissing)
	if err != nil || len(ls2) != 1 {
		t.Fatalf("%v, %v", boundEnds(ls2), err)
	}
	defer closeAll(ls2)
	taken := address{port: port, ends: []netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.9:0"), netip.MustParseAddrPort("127.0.0.1:0"),
	}}
	if ls, err := bindAll(t.Context(), taken); err == nil {
		closeAll(ls)
		t.Error("localhost was served although one of its addresses is in use")
	}
	eventually(t, "the part that could be bound is free again", func() bool {
		return !slices.Contains(listening(t, port), netip.MustParseAddrPort(fmt.Sprintf("127.0.0.9:%d", port)))
	})
}

func TestTheBoundAddressIsCompared(t *testing.T) {
	t.Parallel()
	want := netip.MustParseAddrPort
	for _, tc := range []struct {
		want, got string
		same      bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:0", "127.0.0.1:4711", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:80", "0.0.0.0:80", false},
		{"[::1]:80", "[::]:80", false},
		{"[::1]:80", "127.0.0.1:80", false},
	} {
		if err := sameEnd(want(tc.want), want(tc.got)); (err == nil) != tc.same {
			t.Errorf("wanted %s, bound %s: %v", tc.want, tc.got, err)
		}
	}
}

func TestAPortInUseIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	first := openLoopback(t, Options{})
	_, err := Open(t.Context(), Spec{Network: "tcp", Addr: first.Addr()}, Credential{}, Options{})
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, "address already in use") || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v", err)
	}
}

// protocolOf is SO_PROTOCOL of a listening or connected socket.
func protocolOf(t *testing.T, s syscall.Conn) int {
	t.Helper()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	proto := -1
	raw.Control(func(fd uintptr) { proto, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL) })
	if err != nil {
		t.Fatal(err)
	}
	return proto
}

func TestMultipathTCPIsOff(t *testing.T) {
	t.Parallel()
	l := openLoopback(t, Options{})
	if p := protocolOf(t, l.sockets[0].(*net.TCPListener)); p != unix.IPPROTO_TCP {
		t.Errorf("the listener speaks protocol %d", p)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if p := protocolOf(t, plain.(*net.TCPListener)); p != unix.IPPROTO_MPTCP {
		t.Logf("net.Listen speaks protocol %d here: this test could not fail", p)
	}
	conns := accepted(t, l)
	d := net.Dialer{}
	d.SetMultipathTCP(true)
	client, err := d.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := next(t, conns).(*conn)
	if p := protocolOf(t, server.Conn.(*net.TCPConn)); p != unix.IPPROTO_TCP {
		t.Errorf("the connection speaks protocol %d", p)
	}
}

func TestKeepAliveIsOn(t *testing.T) {
	t.Parallel()
	l := openLoopback(t, Options{})
	conns := accepted(t, l)
	client, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw, err := next(t, conns).(*conn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var on, idle int
	raw.Control(func(fd uintptr) {
		on, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		idle, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
	})
	if on != 1 || idle != 30 {
		t.Errorf("keep-alive %d, idle %d s", on, idle)
	}
}
