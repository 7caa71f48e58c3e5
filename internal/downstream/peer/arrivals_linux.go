package peer

import (
	"fmt"
	"net"
)

// Arrivals reports when connections can be read. One goroutine waits for all of them.
type Arrivals struct{ poller }

// NewArrivals starts an Arrivals. Close ends it.
func NewArrivals() (*Arrivals, error) {
	a := &Arrivals{}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("watching connections: %w", err)
	}
	return a, nil
}

// Await calls f once, on a goroutine of its own, when c has data or has been closed by its
// other end. stop ends that and reports whether f will not be called; it has to be called
// before c is closed. A connection has one Await at a time. An error means that c
// cannot be watched, and f is not called.
func (a *Arrivals) Await(c net.Conn, f func()) (stop func() bool, err error) {
	ticket := a.enter(func() { go f() })
	outer := control(c, func(fd uintptr) { err = a.add(int(fd), ticket) })
	if err == nil {
		err = outer
	}
	if err != nil {
		a.take(ticket)
		return nil, fmt.Errorf("watching a connection: %w", err)
	}
	return func() bool { return a.take(ticket) != nil }, nil
}
