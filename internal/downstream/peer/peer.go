// Package peer examines the process at the other end of a local connection, beyond what
// downstream/attest reports: its program, its ancestors, the owner of a loopback socket.
// It also holds the few system calls that the local listeners need, so that raw system
// calls stay in few packages: the private directory, the lock and the stale socket
// (path_unix.go).
// lock and the stale socket (path_unix.go).
// Invariant: what it finds is observed: it was true when it was read, and may be used to
// take rights away, never to grant any. A fact that could not be read is left out.
// rights away, never to grant any. Nothing that could not be read is filled in.
package peer

import "errors"

var (
	// ErrUnavailable means that this system does not report the owner of a TCP socket.
	ErrUnavailable = errors.New("the owner of a TCP socket cannot be determined on this system")
	// ErrNotFound means that no process holds that socket.
	ErrNotFound = errors.New("no process owns the TCP socket")
)
