package listen

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Other users of this machine, however many uids they have, leave a quarter of a listener to the
// daemon's own user, whatever address of this machine they connect to. Each of them has the share
// of one remote address.
func TestOtherUsersDoNotTakeTheSeatsOfTheOwner(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, tc := range []struct{ addr, dial string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"0.0.0.0:0", "127.0.0.1"}, {"0.0.0.0:0", "127.0.0.9"},
	} {
		t.Run(tc.addr+" at "+tc.dial, func(t *testing.T) {
			t.Parallel()
			const most, each, others = 8, 3, 6
			l := mustOpen(t, Spec{Network: "tcp", Addr: tc.addr, Auth: AuthRequired}, Credential{Set: true}, Options{MaxConns: most, MaxPerRemote: each})
			accepted(t, l)
			at := net.JoinHostPort(tc.dial, fmt.Sprint(addrPort(l.sockets[0].Addr()).Port()))
			refused, open := uint64(0), 0
			var users []*helperProcess
			for i, get := range []int{3, 3, 0} {
				const ask = 5
				users = append(users, start(t, asUID(uint32(20001+i)), "dial-many", at, fmt.Sprint(ask)))
				users[i].line(t)
				open, refused = open+get, refused+uint64(ask-get)
				eventually(t, "each connection is open or refused", func() bool {
					return l.Open() == open && l.Refused()[ReasonTooManyOfUser] == refused
				})
			}
			own := start(t, nil, "dial-many", at, fmt.Sprint(most-others))
			own.line(t)
			eventually(t, "the owner has the rest", func() bool { return l.Open() == most && len(l.Refused()) == 1 })
		})
	}
}

// Whatever other users take and leave, in whatever order, none exceeds its share, the owner finds
// a quarter of the seats, and nothing is kept of who has left.
func TestAQuarterOfTheSeatsIsTheOwners(t *testing.T) {
	t.Parallel()
	for most := 1; most < 40; most++ {
		s := newSeats(most, 5)
		var taken []seat
		for range 400 {
			if len(taken) > 0 && rand.IntN(3) == 0 {
				i := rand.IntN(len(taken))
				s.leave(taken[i])
				taken = append(taken[:i], taken[i+1:]...)
				continue
			}
			at := seat{other: true, uid: rand.Uint32N(20)}
			if s.take(at) == "" {
				taken = append(taken, at)
			}
			if s.count(at) > 5 || 4*len(taken) > 3*most || s.open != len(taken) {
				t.Fatalf("%d seats: one has %d, all others %d", most, s.count(at), len(taken))
			}
		}
		for _, at := range taken {
			s.leave(at)
		}
		if s.taken() != 0 || s.others != 0 || len(s.of) != 0 {
			t.Fatalf("%d open, %d of others, %v left", s.taken(), s.others, s.of)
		}
	}
}

// On a full listener a connection that rests gives way to a new one: one of the seat that has the
// most connections.
func TestAConnectionThatRestsGivesWay(t *testing.T) {
	t.Parallel()
	const most = 8
	l := openLoopback(t, Options{Arrivals: newArrivals(t), MaxConns: most})
	restful(t, l)
	visit := func() asking {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		a := asking{c, bufio.NewReader(c)}
		a.get(t, aRequest)
		return a
	}
	few := visit()
	eventually(t, "the first one rests", func() bool { return l.atRest() == 1 })
	l.resting.mu.Lock()
	for c := range l.resting.conns {
		l.seats.leave(*c.seat)
		*c.seat = seat{other: true, uid: 20001}
		l.seats.take(*c.seat)
	}
	l.resting.mu.Unlock()
	for range 3 * most {
		visit()
		eventually(t, "the connections rest", func() bool { return l.atRest() == l.Open() })
	}
	if l.Open() != most || l.seats.count(seat{}) != most-1 || few.get(t, aRequest) != "++" {
		t.Errorf("%d are open, %d of the greedy one", l.Open(), l.seats.count(seat{}))
	}
}
