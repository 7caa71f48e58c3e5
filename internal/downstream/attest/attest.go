// Package attest reports the kernel's facts about the other end of a Unix connection, and
// whether its process still runs. Everything else that a caller can present (a name, a
// header, a command line) is chosen by the caller.
//
// Invariant: a value in Credentials came from the kernel about this connection, or the
// field is empty. Nothing is guessed. Uid, gid, groups and label are those of the process
// that called connect, at the time of that call; a later setuid intentionally does not
// change them. Bytes that a Guard returns were written by that process while it ran.
package attest

import (
	"errors"
	"fmt"
	"net"
)

var (
	// ErrUnsupported means that Doorward cannot read peer credentials on this operating
	// system.
	ErrUnsupported = errors.New("peer credentials are not supported on this system")
	// ErrGone means that the connecting process has exited, or that the kernel could not
	// give a handle on it. Its pid may already belong to another process.
	ErrGone = errors.New("the peer process is gone")
	// ErrNoIdentity means that the kernel gave no usable uid: none at all, or the overflow
	// uid, which every unmapped user of a user namespace shares.
	ErrNoIdentity = errors.New("the peer's uid cannot be determined")
)

// Credentials holds the facts about the peer of a Unix socket. UID, GID, Groups and Label
// are attested by the kernel; so is Instance if InstanceAttested. PID and Foreign are
// observed: they may take rights away, never grant any.
type Credentials struct {
	UID uint32 // effective uid at connect
	GID uint32 // effective gid at connect

	// Groups are the supplementary groups at connect. If not GroupsKnown, the system did
	// not report them.
	Groups      []uint32
	GroupsKnown bool

	// PID is the pid in the daemon's pid namespace; 0: not visible there. A pid is reused
	// after its process has ended, so it identifies nothing.
	PID int32

	// Label is the label of the security module (SO_PEERSEC), empty without one.
	Label string

	// Instance names the process instance for the record: boot id and inode of the process
	// handle ("BOOT/inode"), unique during this boot, or boot id, pid and start time
	// ("BOOT/PID@START") on older kernels. Empty: unknown.
	Instance         string
	InstanceAttested bool

	// Foreign reports that the peer is in another pid or mount namespace than the daemon,
	// so that only its uid has the same meaning here. It is also false if the namespaces
	// could not be compared (another user's process).
	Foreign bool

	process process
}

// Alive reports whether the connecting process still runs. After Close, and for a nil
// receiver, it is false. On systems without a process handle it is true until Close, and
// InstanceAttested is false.
func (c *Credentials) Alive() bool { return c != nil && c.process.alive() }

// Close releases the process. It may be called more than once, and concurrently with Alive.
func (c *Credentials) Close() error {
	if c == nil {
		return nil
	}
	return c.process.close()
}

// ofSocket returns the result of read for the descriptor of c.
func ofSocket(c *net.UnixConn, read func(fd int) (*Credentials, error)) (*Credentials, error) {
	if c == nil {
		return nil, errors.New("reading peer credentials: no connection")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reading peer credentials: %w", err)
	}
	var creds *Credentials
	var inner error
	if err := raw.Control(func(fd uintptr) { creds, inner = read(int(fd)) }); err != nil {
		return nil, fmt.Errorf("reading peer credentials: %w", err)
	}
	return creds, inner
}
