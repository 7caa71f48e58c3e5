//go:build !linux

package peer

import (
	"errors"
	"net"
)

// Arrivals watches nothing on this system.
type Arrivals struct{}

// NewArrivals makes an Arrivals.
func NewArrivals() (*Arrivals, error) { return &Arrivals{}, nil }

var errNotWatched = errors.New("connections cannot be watched on this system")

// Await returns an error.
func (a *Arrivals) Await(c net.Conn, f func()) (stop func() bool, err error) {
	return nil, errNotWatched
}

// Close does nothing.
func (a *Arrivals) Close() error { return nil }
