package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/test/doortest"
	"golang.org/x/sys/unix"
)

// A loopback connection without a token is refused unless the daemon's user owns its other
// end.
func TestALoopbackCallerOfAnotherUserIsTurnedAway(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, tc := range []struct {
			uid    uint32
			reason string
		}{{12345, ReasonOtherOwner}, {65534, ReasonNoOwner}} {
			t.Run(fmt.Sprint(addr, tc.uid), func(t *testing.T) {
				t.Parallel()
				h := &heard{}
				l := mustOpen(t, Spec{Network: "tcp", Addr: addr}, Credential{}, Options{OnRefused: h.hear})
				conns := accepted(t, l)
				other := start(t, asUID(tc.uid), "dial", "tcp", l.Addr())
				other.line(t)
				if got := other.line(t); got != "read 0 true" {
					t.Errorf("the other user %s", got)
				}
				eventually(t, "the refusal is heard", func() bool { return len(h.list()) > 0 })
				if got := h.list(); got[0] != tc.reason || l.Refused()[tc.reason] != 1 {
					t.Errorf("heard %q, counted %v", got, l.Refused())
				}
				// The connection of the daemon's own user is the first one handed out.
				mine, err := net.Dial("tcp", l.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer mine.Close()
				o := originOf(l, next(t, conns))
				if o.Owner != OwnerSame || o.OwnerUID != uint32(os.Geteuid()) || o.Remote != addrPort(mine.LocalAddr()) {
					t.Errorf("our own: %+v", o)
				}
			})
		}
	}
}

// The owner of a socket is noted and does not decide on a listener that enforces a token.
func TestAnotherUserMayComeWithAToken(t *testing.T) {
	t.Parallel()
	needRoot(t)
	l := mustOpen(t, Spec{Network: "tcp", Addr: "127.0.0.1:0"}, Credential{Set: true}, Options{})
	conns := accepted(t, l)
	start(t, asUID(12345), "dial", "tcp", l.Addr())
	if o := originOf(l, next(t, conns)); o.Owner != OwnerOther || o.OwnerUID != 12345 {
		t.Errorf("owner %q %d", o.Owner, o.OwnerUID)
	}
}

func TestTheOwnerOfTheSocketDecides(t *testing.T) {
	t.Parallel()
	me := uint32(os.Geteuid())
	for _, tc := range []struct {
		uid    uint32
		err    error
		reason string
		owner  Ownership
	}{
		{me, nil, "", OwnerSame},
		{me + 1, nil, ReasonOtherOwner, OwnerOther},
		{0, fmt.Errorf("x: %w", peer.ErrUnavailable), "", OwnerUnknown},
		{0, peer.ErrNotFound, ReasonNoOwner, OwnerNone},
		{me, attest.ErrNoIdentity, ReasonNoOwner, OwnerNone},
		{me, errors.New("anything else"), ReasonNoOwner, OwnerNone},
	} {
		o := &Origin{}
		reason := o.stampOwner(func(netip.AddrPort, netip.AddrPort) (uint32, error) { return tc.uid, tc.err })
		if reason != tc.reason || o.Owner != tc.owner {
			t.Errorf("%d %v: %q, owner %q", tc.uid, tc.err, reason, o.Owner)
		}
	}
}

func TestAClientThatIsGoneBeforeItsLookupIsRefused(t *testing.T) {
	t.Parallel()
	h := &heard{}
	l := openLoopback(t, Options{OnRefused: h.hear})
	conns := accepted(t, l)
	queue, err := net.Listen("tcp", "127.0.0.1:0") // its connections wait until the test accepts them
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	gone, err := net.Dial("tcp", queue.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	gone.Write([]byte("POST /mcp HTTP/1.1\r\n\r\n"))
	gone.(*net.TCPConn).SetLinger(0)
	gone.Close() // a reset; the bytes written before can still be read
	c, err := queue.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.admit(c)
	eventually(t, "the gone client is refused", func() bool { return l.Refused()[ReasonNoOwner] == 1 })
	if len(conns) != 0 {
		t.Error("a connection without an owner was handed out")
	}
}

func TestTheCapsHold(t *testing.T) {
	t.Parallel()
	l := openLoopback(t, Options{MaxConns: 3})
	conns := accepted(t, l)
	var clients []net.Conn
	var served net.Conn
	for i := range 5 {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
		if i < 3 {
			served = next(t, conns)
			Serve(l.ConnContext(t.Context(), served)) // it does not give way
		}
	}
	eventually(t, "two are turned away", func() bool { return l.Refused()[ReasonTooMany] == 2 })
	eventually(t, "three are open", func() bool { return l.Open() == 3 }) // also those whose owner was asked
	var closed atomic.Int32
	for _, c := range clients {
		go func() {
			_, _ = c.Read(make([]byte, 1)) // the listener sends nothing
			closed.Add(1)
		}()
	}
	eventually(t, "those over the cap are closed", func() bool { return closed.Load() == 2 })
	served.Close()
	served.Close() // frees its seat only once
	eventually(t, "the seat is free", func() bool { return l.Open() == 2 })
	again, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	eventually(t, "the next one gets it", func() bool { return l.Open() == 3 })
}

func TestSeatsAreCountedByRemote(t *testing.T) {
	t.Parallel()
	s := newSeats(100, 2)
	a := netip.MustParseAddr
	var taken []seat
	for i, tc := range []struct{ remote, reason string }{
		{"192.0.2.1", ""}, {"192.0.2.1", ""}, {"192.0.2.1", ReasonTooManyHere}, {"::ffff:192.0.2.1", ReasonTooManyHere},
		{"192.0.2.2", ""},
		{"2001:db8::1", ""}, {"2001:db8::2", ""}, {"2001:db8::ffff:3", ReasonTooManyHere}, {"2001:db8:0:1::1", ""},
		{"127.0.0.1", ""}, {"127.0.0.1", ""}, {"127.0.0.1", ""}, {"::1", ""}, {"::1", ""}, {"::1", ""},
	} {
		o := &Origin{Listener: &Listener{}, Remote: netip.AddrPortFrom(a(tc.remote), 1)}
		reason := s.take(o.seat())
		if reason != tc.reason {
			t.Errorf("%d %s: %q", i, tc.remote, reason)
		}
		if reason == "" {
			taken = append(taken, o.seat())
		}
	}
	for _, at := range taken {
		s.leave(at)
	}
	if s.taken() != 0 || len(s.of) != 0 {
		t.Errorf("%d open, %v left", s.taken(), s.of)
	}
	if reason := s.take((&Origin{Listener: &Listener{}}).seat()); reason != "" {
		t.Errorf("a Unix peer: %q", reason)
	}
}

func TestAcceptEndsOnlyWithTheListener(t *testing.T) {
	t.Parallel()
	l := openLoopback(t, Options{})
	got := make(chan error)
	go func() { _, err := l.Accept(); got <- err }()
	l.Close()
	if err := <-got; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// faulty fails to accept a few times, as in a process that has no descriptors left.
type faulty struct {
	net.Listener
	mu    sync.Mutex
	fails int
}

func (f *faulty) Accept() (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestAnAcceptErrorIsWaitedOut(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &heard{}
	l := newListener(Spec{Network: "tcp"}, Options{OnRefused: h.hear}.withDefaults())
	l.sockets = []net.Listener{&faulty{Listener: ln, fails: 3}}
	l.start()
	defer l.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	next(t, accepted(t, l))
	if got := h.list(); len(got) != 3 || got[0] != ReasonAcceptFailed {
		t.Errorf("heard %q", got)
	}
}

// Two thousand simultaneous connections are all served, and leave no descriptor and no
// goroutine behind.
func TestTwoThousandConnectionsAtOnce(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			needDescriptors(t, 8000)
			leavesNothing(t, func() { twoThousand(t, network) })
		})
	}
}

func twoThousand(t *testing.T, network string) {
	const n = 2000
	spec := Spec{Network: network, Addr: "127.0.0.1:0"}
	if network == "unix" {
		spec.Addr = filepath.Join(shortDir(t), "s")
	}
	l, err := Open(t.Context(), spec, Credential{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns := accepted(t, l)
	clients := make(chan net.Conn, n)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range n / 50 {
				c, err := dialPatiently(network, l.Addr())
				if err != nil {
					t.Error(err)
					return
				}
				clients <- c
			}
		})
	}
	wg.Wait()
	close(clients)
	eventually(t, "all are seated", func() bool { return l.Open() == n && len(conns) == n })
	for range n {
		c := next(t, conns)
		o := originOf(l, c)
		if network == "unix" && (o.Peer == nil || o.Peer.UID != uint32(os.Geteuid())) {
			t.Fatalf("peer %+v", o.Peer)
		}
		if network == "tcp" && o.Owner != OwnerSame {
			t.Fatalf("owner %q", o.Owner)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for c := range clients {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	if l.Open() != 0 || len(l.Refused()) != 0 {
		t.Errorf("%d open, refused %v", l.Open(), l.Refused())
	}
}

// dialPatiently tries again when the queue of a Unix listener is full.
func dialPatiently(network, addr string) (c net.Conn, err error) {
	doortest.Becomes(20*time.Second, func() bool {
		c, err = net.Dial(network, addr)
		return !errors.Is(err, syscall.EAGAIN)
	})
	return c, err
}

func needDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur < n {
		t.Skipf("needs %d descriptors, may have %d", n, r.Cur)
	}
}

func BenchmarkAcceptUnix(b *testing.B) { benchmarkAccept(b, openSocket(b, Options{})) }

func BenchmarkAcceptTCP(b *testing.B) { benchmarkAccept(b, openLoopback(b, Options{})) }

func benchmarkAccept(b *testing.B, l *Listener) {
	for b.Loop() {
		client, err := net.Dial(l.Network, l.Addr())
		if err != nil {
			b.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
		client.Close()
	}
}
