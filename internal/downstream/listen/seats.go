package listen

import (
	"net/netip"
	"sync"
)

// seats counts the open connections of a listener, in total and by remote address. Local
// callers share their address, so only the total limits them.
type seats struct {
	mu       sync.Mutex
	open     int
	byRemote map[netip.Addr]int
	max, per int
}

func newSeats(maxAll, perRemote int) seats {
	return seats{byRemote: map[netip.Addr]int{}, max: maxAll, per: perRemote}
}

// take counts one more connection, or returns the reason why not. key is for leave.
func (s *seats) take(remote netip.Addr) (key netip.Addr, reason string) {
	key = seatKey(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open >= s.max:
		return key, ReasonTooMany
	case key.IsValid() && s.byRemote[key] >= s.per:
		return key, ReasonTooManyHere
	}
	s.open++
	if key.IsValid() {
		s.byRemote[key]++
	}
	return key, ""
}

func (s *seats) leave(key netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if !key.IsValid() {
		return
	}
	if s.byRemote[key]--; s.byRemote[key] <= 0 {
		delete(s.byRemote, key)
	}
}

func (s *seats) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// seatKey returns the address to count: for IPv6 the network of 64 bits, because one host
// can use all of its addresses; for local callers the zero Addr.
func seatKey(remote netip.Addr) netip.Addr {
	remote = remote.Unmap().WithZone("")
	if !remote.IsValid() || remote.IsLoopback() {
		return netip.Addr{}
	}
	if remote.Is6() {
		p, _ := remote.Prefix(64)
		return p.Addr()
	}
	return remote
}
