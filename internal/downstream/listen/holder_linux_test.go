package listen

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// scripted is a Holders with answers that the test sets.
type scripted struct {
	mu    sync.Mutex
	find  func(remote netip.AddrPort) (peer.Holder, error)
	still bool
}

func (s *scripted) set(find func(netip.AddrPort) (peer.Holder, error), still bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find, s.still = find, still
}

func (s *scripted) Find(_, remote netip.AddrPort) (peer.Holder, error) {
	s.mu.Lock()
	find := s.find
	s.mu.Unlock()
	return find(remote)
}

func (s *scripted) Still(peer.Holder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.still
}

func always(h peer.Holder, err error) func(netip.AddrPort) (peer.Holder, error) {
	return func(netip.AddrPort) (peer.Holder, error) { return h, err }
}

var verdicts = []struct {
	name   string
	holder peer.Holder
	err    error
	first  string // the reason for refusing it at the accept; empty: admitted
	later  string // the reason for ending it after it was admitted; empty: it stays
}{
	{"a process outside", peer.Holder{PID: 7}, nil, "", ""},
	{"a process inside", peer.Holder{PID: 7, Inside: true}, nil, ReasonOwnSocket, ReasonOwnSocket},
	{"no process", peer.Holder{}, peer.ErrNoHolder, ReasonNoHolder, ReasonNoHolder},
	{"no answer", peer.Holder{}, errors.New("no descriptors left"), ReasonNoHolder, ReasonNoHolder},
	{"a system without the information", peer.Holder{}, peer.ErrUnavailable, ReasonNoHolder, ReasonNoHolder},
	{"a closed socket", peer.Holder{}, peer.ErrNotFound, ReasonNoOwner, ""},
}

// A loopback connection is admitted only if a process outside the daemon holds its other
// end. Any other result of the search refuses it.
func TestALoopbackCallerIsAdmittedForItsHolder(t *testing.T) {
	t.Parallel()
	for _, tc := range verdicts {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var heard []Refusal
			s := &scripted{find: always(tc.holder, tc.err)}
			l := openLoopback(t, Options{Holders: s, OnRefused: func(r Refusal) { mu.Lock(); defer mu.Unlock(); heard = append(heard, r) }})
			conns := accepted(t, l)
			c := dialled(t, l)
			if tc.first == "" {
				if h, err := originOf(l, next(t, conns)).Holder(); err != nil || h != tc.holder {
					t.Errorf("its origin knows %+v, %v", h, err)
				}
				return
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it is not closed: %v", err)
			}
			eventually(t, "the refusal is heard", func() bool { mu.Lock(); defer mu.Unlock(); return len(heard) > 0 })
			if r := heard[0]; r.Reason != tc.first || r.Holder != tc.holder || r.Owner != OwnerSame || r.UID != uint32(os.Geteuid()) {
				t.Errorf("heard %+v", r)
			}
		})
	}
}

// Bytes that arrive more than a second after the last search for the holder are handed out
// only after another check. The connection ends if its holder is no longer admissible.
func TestAConnectionThatChangesHandsEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range verdicts {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := &heard{}
			s := &scripted{find: always(peer.Holder{PID: 7}, nil)}
			l := openLoopback(t, Options{Holders: s, OnRefused: h.hear})
			conns := accepted(t, l)
			c := dialled(t, l)
			server := next(t, conns)
			for range 3 { // the holder is the same
				s.set(always(peer.Holder{}, peer.ErrNoHolder), true)
				forget(l, server)
				if got := sent(t, c, server); got != "x" {
					t.Fatalf("while the holder is the same: %q", got)
				}
			}
			s.set(always(tc.holder, tc.err), false)
			forget(l, server)
			want := "x"
			if tc.later != "" {
				want = ""
			}
			if got := sent(t, c, server); got != want {
				t.Errorf("handed out %q, want %q", got, want)
			}
			if tc.later != "" && (len(h.list()) != 1 || h.list()[0] != tc.later) {
				t.Errorf("heard %q", h.list())
			}
		})
	}
}

// forget makes the last search for the holder an old one.
func forget(l *Listener, c net.Conn) {
	o := originOf(l, c)
	o.holder.mu.Lock()
	o.holder.at = time.Now().Add(-2 * holderKept)
	o.holder.mu.Unlock()
}

// sent has the client write one byte and returns what the server reads; empty when the
// connection has ended.
func sent(t *testing.T, client, server net.Conn) string {
	t.Helper()
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	n, err := server.Read(b)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(b[:n])
}

func dialled(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// A slow search for a holder delays the connection that it is for, and no other.
func TestASlowSearchDoesNotDelayOtherCallers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := make(chan netip.AddrPort, 1)
	s := &scripted{}
	s.set(func(remote netip.AddrPort) (peer.Holder, error) {
		select {
		case of := <-slow:
			slow <- of
			if of == remote {
				<-release
			}
		case <-time.After(30 * time.Second):
			return peer.Holder{}, errors.New("the test did not set the slow connection")
		}
		return peer.Holder{PID: 7}, nil
	}, true)
	l := openLoopback(t, Options{Holders: s})
	conns := accepted(t, l)
	first := dialled(t, l)
	slow <- addrPort(first.LocalAddr())
	for range 20 {
		mine := dialled(t, l)
		if got := next(t, conns); addrPort(got.RemoteAddr()) != addrPort(mine.LocalAddr()) {
			t.Errorf("handed out %v, want %v", got.RemoteAddr(), mine.LocalAddr())
		}
	}
	close(release)
	if got := next(t, conns); addrPort(got.RemoteAddr()) != addrPort(first.LocalAddr()) {
		t.Errorf("handed out %v after the search, want %v", got.RemoteAddr(), first.LocalAddr())
	}
}

// A listener that enforces a token does not search for holders at the accept. It does when
// Holder is called, for connections from this machine only, and the result does not end the
// connection.
func TestATokenDefersTheSearchForTheHolder(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		s := &scripted{find: always(peer.Holder{PID: 7, Inside: true}, nil)}
		l := mustOpen(t, Spec{Network: "tcp", Addr: addr}, Credential{Set: true}, Options{Holders: s})
		conns := accepted(t, l)
		c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), boundEnds(l.sockets)[0].Port()).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		server := next(t, conns)
		if h, err := originOf(l, server).Holder(); err != nil || h.PID != 7 {
			t.Errorf("%s: %+v, %v", addr, h, err)
		}
		forget(l, server)
		s.set(always(peer.Holder{}, peer.ErrNoHolder), false)
		if got := sent(t, c, server); got != "x" {
			t.Errorf("%s: a connection with a token ends for its holder", addr)
		}
		o := originOf(l, server)
		o.Remote = netip.MustParseAddrPort("192.0.2.1:1")
		if _, err := o.Holder(); !errors.Is(err, peer.ErrUnavailable) {
			t.Errorf("%s: of a remote caller: %v", addr, err)
		}
	}
}
