package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

// accepted accepts a loopback connection and returns its local and remote address.
func accepted(t testing.TB, ln net.Listener) (local, remote netip.AddrPort) {
	t.Helper()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())
}

// elsewhere is a pid without a process: below it is nothing, so the helpers of a test count as
// outside the daemon.
const elsewhere = 1 << 30

// The holder of a loopback socket is found in any process of the user and at any descriptor,
// and it is known whether it is below the daemon. A process below the daemon with very many
// descriptors may be left out.
func TestTheHolderOfALoopbackSocketIsFound(t *testing.T) {
	t.Parallel()
	ln := tcpListener(t, "127.0.0.1:0")
	self := int32(os.Getpid())
	for _, how := range []string{"plain", "high descriptor", "many descriptors", "duplicate", "in a grandchild", "inherited over exec", "inherited by children", "half closed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			h, local, remote := hold(t, nil, how)
			for root, inside := range map[int32]bool{self: true, elsewhere: false} {
				got, err := NewHolders(root).Find(local, remote)
				if inside && how == "many descriptors" && errors.Is(err, ErrNoHolder) {
					continue // its descriptors are not read to the end; it would be refused anyway
				}
				inherited := inside && how == "inherited by children" // any of them is refused
				if err != nil || got.Inside != inside || got.PID != h.holder && !inherited || !slices.Contains(mustLineage(t, got), got.Process) {
					t.Errorf("below %d: %+v, %v; want process %d, inside %v", root, got, err, h.holder, inside)
				}
				if !NewHolders(root).Still(got) {
					t.Error("it does not hold the socket any more")
				}
			}
		})
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	local, remote := accepted(t, ln)
	// A helper that is being started has all descriptors until its exec. Other tests open so many
	// descriptors in this process that it may be left out meanwhile.
	puppet.Eventually(t, "a socket of the daemon's own", func() bool {
		got, err := NewHolders(self).Find(local, remote)
		if err == nil && !got.Inside {
			t.Errorf("a socket of the daemon's own: %+v", got)
		}
		return err == nil
	})
	if _, err := NewHolders(self).Find(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")); !errors.Is(err, ErrNotFound) {
		t.Errorf("no socket: %v, want ErrNotFound", err)
	}
}

func mustLineage(t *testing.T, h Holder) []string {
	t.Helper()
	names, err := AncestorsOf(h)
	if err != nil {
		t.Error(err)
	}
	return names
}

// A socket that is in no descriptor table of a process has no holder, inside or outside the
// daemon: it is in flight, in io_uring, in a thread's own table or left by its process.
func TestASocketInNoDescriptorTableHasNoHolder(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"in flight to itself", "in flight in flight", "in flight to another", "io_uring", "own table of a thread", "left by its process"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			_, local, remote := hold(t, nil, how)
			if uid, err := OwnerOfTCP(local, remote); err != nil || uid != uint32(os.Geteuid()) {
				t.Fatalf("the kernel's table says %d, %v: the socket is not staged", uid, err)
			}
			for _, root := range []int32{int32(os.Getpid()), elsewhere} {
				if got, err := NewHolders(root).Find(local, remote); !errors.Is(err, ErrNoHolder) {
					t.Errorf("below %d: %+v, %v; want ErrNoHolder", root, got, err)
				}
			}
		})
	}
}

// Still and a new search notice that a holder has given its descriptor away after it was
// found.
func TestAHolderThatLetsGoIsNoHolderAnyMore(t *testing.T) {
	t.Parallel()
	h, local, remote := hold(t, nil, "lets go when told")
	holders := NewHolders(elsewhere)
	got, err := holders.Find(local, remote)
	if err != nil || !holders.Still(got) {
		t.Fatalf("%+v, %v", got, err)
	}
	other := got
	other.Process = attest.Instance(got.PID, 1)
	if holders.Still(other) {
		t.Error("another process of that number is taken for it")
	}
	h.Tell(t)
	if holders.Still(got) {
		t.Error("Still holds, with the socket in flight")
	}
	if got, err := holders.Find(local, remote); !errors.Is(err, ErrNoHolder) {
		t.Errorf("%+v, %v; want ErrNoHolder", got, err)
	}
}

func TestAnotherUsersProcessIsNoHolder(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	for _, how := range []string{"held by another user", "held by another user who hides"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			_, local, remote := hold(t, nil, how)
			if got, err := NewHolders(elsewhere).Find(local, remote); !errors.Is(err, ErrNoHolder) {
				t.Errorf("%+v, %v; want ErrNoHolder", got, err)
			}
		})
	}
}

// Callers are identified within 30 seconds each although ten processes below the daemon are
// full of descriptors and four goroutines search for a socket without a holder all the time.
func TestFullProcessesDoNotStarveCallers(t *testing.T) {
	t.Parallel()
	var before sync.WaitGroup
	for range 10 {
		h := puppet.Start(t, nil, "full", "4000")
		before.Go(func() { h.Line(t, "full") })
	}
	before.Wait()
	holders := NewHolders(int32(os.Getpid()))
	_, lostLocal, lostRemote := hold(t, nil, "in flight to itself")
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for range 4 {
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					holders.Find(lostLocal, lostRemote)
				}
			}
		})
	}
	defer flood.Wait()
	defer close(stop)
	for range 20 {
		h, local, remote := hold(t, nil, "plain")
		began := time.Now()
		got, err := holders.Find(local, remote)
		if err != nil || got.PID != h.holder {
			t.Errorf("%+v, %v", got, err)
		}
		if took := time.Since(began); took > 30*time.Second { // without fairness it would take as long as the others search
			t.Errorf("it took %v", took)
		}
	}
}

// Two thousand simultaneous connections, 400 of each of five processes, are all identified.
func TestManyConnectionsAtOnceAreAllIdentified(t *testing.T) {
	t.Parallel()
	ln := tcpListener(t, "127.0.0.1:0")
	holders := NewHolders(elsewhere)
	const each, processes = 400, 5
	for range processes {
		puppet.Start(t, nil, "dial-many", ln.Addr().String(), fmt.Sprint(each))
	}
	var failed sync.Map
	var all sync.WaitGroup
	for range each * processes {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all.Go(func() {
			if _, err := holders.Find(addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())); err != nil {
				failed.Store(c.RemoteAddr().String(), err)
			}
		})
	}
	all.Wait()
	failed.Range(func(k, v any) bool { t.Errorf("%v: %v", k, v); return true })
}

// Fifty simultaneous searches for one socket all find its holder.
func TestOneSocketWantedTwiceIsAnsweredTwice(t *testing.T) {
	t.Parallel()
	h, local, remote := hold(t, nil, "plain")
	holders := NewHolders(elsewhere)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got, err := holders.Find(local, remote); err != nil || got.PID != h.holder {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	all.Wait()
}

// BenchmarkFindHolder finds a caller among 64 servers of three processes each: a caller that
// was found before, and a new one.
func BenchmarkFindHolder(b *testing.B) {
	for range 64 * 3 {
		puppet.Start(b, nil, "hold")
	}
	ln := tcpListener(b, "127.0.0.1:0")
	for _, who := range []string{"known", "new"} {
		b.Run(who, func(b *testing.B) {
			h := puppet.Start(b, nil, "dial-again", ln.Addr().String())
			holders := NewHolders(elsewhere)
			for b.Loop() {
				b.StopTimer()
				h.In.Write([]byte("x"))
				c, err := ln.Accept()
				if err != nil {
					b.Fatal(err)
				}
				if who == "new" {
					holders.recent = nil
				}
				b.StartTimer()
				if _, err := holders.Find(addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				c.Close()
				b.StartTimer()
			}
		})
	}
}
