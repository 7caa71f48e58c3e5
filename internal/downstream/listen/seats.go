package listen

import (
	"net/netip"
	"sync"
)

// seats counts the open connections of a listener, in total and by seat.
type seats struct {
	mu       sync.Mutex
	open     int
	others   int // open ones of other users of this machine
	begun    int // not open yet
	of       map[seat]int
	max, per int
}

// seat identifies the callers whose connections are limited together: a remote address, or
// another user of this machine. Only the total limits the zero seat, which the daemon's own user
// and the trusted proxies have.
type seat struct {
	remote netip.Addr
	other  bool
	uid    uint32 // if other
}

func newSeats(maxAll, perSeat int) seats {
	return seats{of: map[seat]int{}, max: maxAll, per: perSeat}
}

// take counts one more connection, or returns the reason why not. A quarter of the listener is out
// of reach of all other users together: one person can have many uids.
func (s *seats) take(at seat) (reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case at.other && (s.of[at] >= s.per || s.others >= s.max-(s.max+3)/4):
		return ReasonTooManyOfUser
	case at != seat{} && s.of[at] >= s.per:
		return ReasonTooManyHere // first: no other connection gives way to it
	case s.open >= s.max:
		return ReasonTooMany
	}
	s.open++
	s.of[at]++
	if at.other {
		s.others++
	}
	return ""
}

// begin counts a connection whose seat is not known yet; false: there are too many.
func (s *seats) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun >= s.max {
		return false
	}
	s.begun++
	return true
}

func (s *seats) known() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun--
}

func (s *seats) leave(at seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if at.other {
		s.others--
	}
	if s.of[at]--; s.of[at] <= 0 {
		delete(s.of, at)
	}
}

func (s *seats) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// count returns the number of open connections of a seat.
func (s *seats) count(at seat) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[at]
}

// remoteSeat returns the seat of a remote address: for IPv6 that of the network of 64 bits,
// because one host can use all of its addresses.
func remoteSeat(remote netip.Addr) seat {
	remote = remote.Unmap().WithZone("")
	if remote.Is6() {
		p, _ := remote.Prefix(64)
		remote = p.Addr()
	}
	return seat{remote: remote}
}
