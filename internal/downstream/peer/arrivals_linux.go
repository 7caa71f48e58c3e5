package peer

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Arrivals reports when connections can be read, and when their other ends close them. One
// goroutine each waits for all of them.
type Arrivals struct {
	poller
	ends poller
}

// NewArrivals starts an Arrivals. Close ends it.
func NewArrivals() (*Arrivals, error) {
	a := &Arrivals{}
	if err := a.open(unix.EPOLLIN | unix.EPOLLRDHUP); err != nil {
		return nil, fmt.Errorf("watching connections: %w", err)
	}
	if err := a.ends.open(unix.EPOLLRDHUP); err != nil {
		return nil, errors.Join(fmt.Errorf("watching connections: %w", err), a.poller.Close())
	}
	return a, nil
}

// Close ends the watching.
func (a *Arrivals) Close() error { return errors.Join(a.poller.Close(), a.ends.Close()) }

// Await calls f once, on a goroutine of its own, when c has data or has been closed by its
// other end. stop ends that and reports whether f will not be called; it has to be called
// before c is closed. A connection has one Await at a time. An error means that c
// cannot be watched, and f is not called.
func (a *Arrivals) Await(c net.Conn, f func()) (stop func() bool, err error) {
	return a.watch(c, f)
}

// AwaitEnd calls f as Await does, when c or the half for writing of its other end is closed
// there, also while data in front of it is unread. It is independent of Await.
func (a *Arrivals) AwaitEnd(c net.Conn, f func()) (stop func() bool, err error) {
	return a.ends.watch(c, f)
}

// watch calls f once, on a goroutine of its own, at an event of c.
func (p *poller) watch(c net.Conn, f func()) (stop func() bool, err error) {
	ticket := p.enter(func() { go f() })
	outer := control(c, func(fd uintptr) { err = p.add(int(fd), ticket) })
	if err == nil {
		err = outer
	}
	if err != nil {
		p.take(ticket)
		return nil, fmt.Errorf("watching a connection: %w", err)
	}
	return func() bool { return p.take(ticket) != nil }, nil
}
