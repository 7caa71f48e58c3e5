//go:build !linux

package peer

import (
	"errors"
	"fmt"
	"net"
)

// Arrivals is not available on this system.
type Arrivals struct{}

var errNotWatched = fmt.Errorf("watching connections on this system: %w", errors.ErrUnsupported)

// NewArrivals returns errors.ErrUnsupported. A connection that cannot be watched must not rest:
// it would be closed instead.
func NewArrivals() (*Arrivals, error) { return nil, errNotWatched }

// Await returns an error.
func (a *Arrivals) Await(c net.Conn, f func()) (stop func() bool, err error) {
	return nil, errNotWatched
}

// AwaitEnd returns an error.
func (a *Arrivals) AwaitEnd(c net.Conn, f func()) (stop func() bool, err error) {
	return nil, errNotWatched
}

// Close does nothing.
func (a *Arrivals) Close() error { return nil }
