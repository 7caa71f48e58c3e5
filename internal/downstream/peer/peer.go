// Package peer looks at the process at the other end of a local connection,
// beyond what downstream/attest knows of it: its program, its ancestors, the owner of
// a loopback socket. It also holds the few system calls that the local doors
// need, so that raw system calls stay in few packages: the private directory, the
// lock and the stale socket (path_unix.go).
//
// Invariant: what it finds is observed: true when it was read, and fit to take
// rights away, never to grant any. Nothing that could not be read is filled in.
package peer

import "errors"

var (
	// ErrUnavailable: this system cannot say who owns a TCP socket.
	ErrUnavailable = errors.New("the owner of a TCP socket cannot be determined on this system")
	// ErrNotFound: the system looked and no process holds that socket.
	ErrNotFound = errors.New("no process owns the TCP socket")
)
