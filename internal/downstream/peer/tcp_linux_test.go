package peer

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

// pairs are the ways a client can reach a loopback listener.
var pairs = []struct{ name, listen, dial string }{
	{"IPv4", "127.0.0.1:0", "127.0.0.1"},
	{"IPv4, another loopback address", "127.8.9.1:0", "127.8.9.1"},
	{"IPv6", "[::1]:0", "::1"},
	{"IPv4 through a dual-stack listener", "[::]:0", "127.0.0.1"},
	{"IPv6 through a dual-stack listener", "[::]:0", "::1"},
}

func tcpListener(t testing.TB, addr string) *net.TCPListener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

func dialAddr(ln *net.TCPListener, host string) string {
	return netip.AddrPortFrom(netip.MustParseAddr(host), addrOf(ln.Addr()).Port()).String()
}

func TestTheOwnerOfALoopbackClientIsFound(t *testing.T) {
	t.Parallel()
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			ln := tcpListener(t, p.listen)
			puppet.Start(t, nil, "dial", "tcp", dialAddr(ln, p.dial)).Line(t, "connected")
			checkOwner(t, ln, uint32(os.Geteuid()))
		})
	}
}

func TestAnotherUsersSocketIsFound(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			ln := tcpListener(t, p.listen)
			puppet.Start(t, puppet.AsUID(12345), "dial", "tcp", dialAddr(ln, p.dial)).Line(t, "connected")
			checkOwner(t, ln, 12345)
		})
	}
}

func checkOwner(t *testing.T, ln *net.TCPListener, want uint32) {
	t.Helper()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	uid, err := OwnerOfTCP(addrOf(conn.LocalAddr()), addrOf(conn.RemoteAddr()))
	if err != nil || uid != want {
		t.Errorf("owner %d, %v; want %d", uid, err, want)
	}
}

func TestTheOverflowUIDOwnsNothing(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	ln := tcpListener(t, "127.0.0.1:0")
	puppet.Start(t, puppet.AsUID(65534), "dial", "tcp", ln.Addr().String()).Line(t, "connected")
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if uid, err := OwnerOfTCP(addrOf(conn.LocalAddr()), addrOf(conn.RemoteAddr())); !errors.Is(err, attest.ErrNoIdentity) {
		t.Errorf("owner %d, %v; want attest.ErrNoIdentity", uid, err)
	}
}

// The owner of an IPv6 socket with a mapped IPv4 address is found.
func TestAClientOnAMappedAddressIsFound(t *testing.T) {
	t.Parallel()
	ln := tcpListener(t, "127.0.0.1:0")
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet6{Port: int(addrOf(ln.Addr()).Port())}
	to.Addr = netip.MustParseAddr("::ffff:127.0.0.1").As16()
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	checkOwner(t, ln, uint32(os.Geteuid()))
}

// The owner of an MPTCP client of a plain listener is found: the client falls back to TCP.
func TestAMultipathClientIsFound(t *testing.T) {
	t.Parallel()
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := net.Dialer{}
	d.SetMultipathTCP(true)
	c, err := d.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	checkOwner(t, ln.(*net.TCPListener), uint32(os.Geteuid()))
}

// A client's end has no owner once the client has closed it, reset it or closed it for
// writing.
func TestAClosedClientHasNoOwner(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		do   func(*net.TCPConn)
	}{
		{"closed", func(c *net.TCPConn) { c.Close() }},
		{"reset", func(c *net.TCPConn) { c.Write([]byte("x")); c.SetLinger(0); c.Close() }},
		{"half closed", func(c *net.TCPConn) { c.CloseWrite() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			ln := tcpListener(t, "127.0.0.1:0")
			client, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			end.do(client.(*net.TCPConn))
			local, remote := addrOf(conn.LocalAddr()), addrOf(conn.RemoteAddr())
			puppet.Eventually(t, "the socket has no owner", func() bool {
				_, err := OwnerOfTCP(local, remote)
				return errors.Is(err, ErrNotFound)
			})
		})
	}
}

// A listening socket is not the owner of a client, although the kernel returns it when there
// is no connection with the addresses asked for.
func TestAListenerIsNoClient(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln := tcpListener(t, addr)
		a := addrOf(ln.Addr())
		stranger := netip.AddrPortFrom(a.Addr(), 1)
		for _, ask := range [][2]netip.AddrPort{{stranger, a}, {a, stranger}, {a, a}} {
			if uid, err := OwnerOfTCP(ask[0], ask[1]); !errors.Is(err, ErrNotFound) {
				t.Errorf("%v: owner %d, %v; want ErrNotFound", ask, uid, err)
			}
		}
	}
}

func TestBadPairsAreNotFound(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("[::1]:1")
	for _, ask := range [][2]netip.AddrPort{{}, {v4, v6}, {v4, {}}, {{}, v4}} {
		if _, err := OwnerOfTCP(ask[0], ask[1]); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v: %v, want ErrNotFound", ask, err)
		}
	}
}

func TestPermanentErrorsMeanUnavailable(t *testing.T) {
	t.Parallel()
	for _, errno := range []unix.Errno{unix.EPERM, unix.EACCES, unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS, unix.EAFNOSUPPORT} {
		if _, err := parseNetlink(netlinkError(errno)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotFound) {
			t.Errorf("%v: %v, want ErrUnavailable", errno, err)
		}
	}
}

// An error that is transient, or that a caller could cause, is not ErrUnavailable: with that
// the connection would be served.
func TestTransientErrorsDoNotMeanUnavailable(t *testing.T) {
	t.Parallel()
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EINTR, unix.ENOENT} {
		if _, err := parseNetlink(netlinkError(errno)); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	ln := tcpListener(t, "127.0.0.1:0")
	h := puppet.Start(t, nil, "ask-without-descriptors", ln.Addr().String())
	if got := h.Line(t, "asked"); got != "asked true false" {
		t.Errorf("without descriptors: %s; want an error that is not ErrUnavailable", got)
	}
}

func netlinkError(errno unix.Errno) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+4)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.NLMSG_ERROR)
	binary.NativeEndian.PutUint32(b[unix.NLMSG_HDRLEN:], uint32(-int32(errno)))
	return b
}

func FuzzNetlink(f *testing.F) {
	f.Add(netlinkError(unix.ENOENT))
	f.Add([]byte{})
	f.Add(make([]byte, unix.NLMSG_HDRLEN+diagMessageSize))
	src := netip.MustParseAddrPort("127.0.0.1:1")
	f.Fuzz(func(t *testing.T, b []byte) {
		msgs, err := parseNetlink(b)
		if err != nil {
			return
		}
		for _, m := range msgs {
			if len(m.Data) >= diagMessageSize {
				ownerIn(m.Data, src, src)
			}
		}
	})
}

func BenchmarkOwnerOfTCP(b *testing.B) {
	ln := tcpListener(b, "127.0.0.1:0")
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	local, remote := addrOf(conn.LocalAddr()), addrOf(conn.RemoteAddr())
	for b.Loop() {
		if _, err := OwnerOfTCP(local, remote); err != nil {
			b.Fatal(err)
		}
	}
}

// diagAnswer is a struct inet_diag_msg for an established IPv4 socket.
func diagAnswer(src, dst netip.AddrPort, state byte, uid, inode uint32) []byte {
	b := make([]byte, diagMessageSize)
	b[0], b[1] = unix.AF_INET, state
	binary.BigEndian.PutUint16(b[4:], src.Port())
	binary.BigEndian.PutUint16(b[6:], dst.Port())
	copy(b[8:], src.Addr().AsSlice())
	copy(b[24:], dst.Addr().AsSlice())
	binary.NativeEndian.PutUint32(b[64:], uid)
	binary.NativeEndian.PutUint32(b[68:], inode)
	return b
}

// An answer of the kernel counts only for the exact socket that was asked for, if it is
// established and has an inode.
func TestAnAnswerForAnotherSocketIsNone(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort
	src, dst := at("127.0.0.1:1000"), at("127.0.0.1:2000")
	if uid, err := ownerIn(diagAnswer(src, dst, tcpEstablished, 7, 42), src, dst); err != nil || uid != 7 {
		t.Fatalf("the right one: %d, %v", uid, err)
	}
	for name, b := range map[string][]byte{
		"another source port":         diagAnswer(at("127.0.0.1:1001"), dst, tcpEstablished, 7, 42),
		"another source address":      diagAnswer(at("127.0.0.2:1000"), dst, tcpEstablished, 7, 42),
		"another destination port":    diagAnswer(src, at("127.0.0.1:2001"), tcpEstablished, 7, 42),
		"another destination address": diagAnswer(src, at("127.0.0.2:2000"), tcpEstablished, 7, 42),
		"the other direction":         diagAnswer(dst, src, tcpEstablished, 7, 42),
		"listening":                   diagAnswer(src, dst, 10, 7, 42),
		"closing":                     diagAnswer(src, dst, 8, 7, 42),
		"without an inode":            diagAnswer(src, dst, tcpEstablished, 0, 0),
	} {
		if uid, err := ownerIn(b, src, dst); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %d, %v", name, uid, err)
		}
	}
}
