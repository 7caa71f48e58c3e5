// Package attest says what the kernel knows about the other end of a Unix
// connection, and whether that still holds. It exists because everything else
// that a caller can offer (a name, a header, a command line) is chosen by the
// caller.
//
// Invariant: a value in Credentials came from the kernel about this very
// connection, or the field is empty. Nothing here is guessed, and nothing that
// could not be read is filled in. Uid, gid, groups and label are those of the
// process that called connect, at the time of that call; a later setuid does
// not show, and that is right. Bytes that a Guard returns were written by that
// process while it ran.
package attest

import (
	"errors"
	"fmt"
	"net"
)

var (
	// ErrUnsupported: this operating system has no peer credentials that
	// Doorward knows how to read. Nothing is invented in their place.
	ErrUnsupported = errors.New("peer credentials are not supported on this system")
	// ErrGone means that the connecting process has exited, or that the kernel
	// could not give a handle on it. Its pid may already belong to another process.
	ErrGone = errors.New("the peer process is gone")
	// ErrNoIdentity: the kernel gave no usable uid: the overflow uid, which
	// every unmapped user of a user namespace shares, or none at all.
	ErrNoIdentity = errors.New("the peer's uid cannot be told")
)

// Credentials is what is known of a Unix socket's peer. UID, GID, Groups and
// Label are attested by the kernel; so is Instance when InstanceAttested.
// PID and Foreign are observed: they may take rights away, never give any.
type Credentials struct {
	UID uint32 // effective uid at connect
	GID uint32 // effective gid at connect

	// Groups are the supplementary groups at connect. Empty and not
	// GroupsKnown: the system did not say.
	Groups      []uint32
	GroupsKnown bool

	// PID in the daemon's own pid namespace; 0 when it is not visible there.
	// A pid is used again after its process has gone: it is decoration.
	PID int32

	// Label is the label of the security module (SO_PEERSEC), empty without one.
	Label string

	// Instance names the process instance for the record: boot id and inode
	// of the process handle ("BOOT/inode"), unique for this boot, or composed
	// of boot id, pid and start time ("BOOT/pid@start") on older kernels.
	// Empty when there is nothing to compose it of.
	Instance         string
	InstanceAttested bool

	// Foreign: the peer lives in another pid or mount namespace than the
	// daemon, so nothing but its uid means here what it means there. False
	// also when the namespaces could not be compared (another user's process).
	Foreign bool

	process process
}

// Alive reports whether the connecting process still runs. After Close, and
// for a nil receiver, it is false. On systems without a process handle it is
// true until Close, and InstanceAttested is false.
func (c *Credentials) Alive() bool { return c != nil && c.process.alive() }

// Close lets the process go. It may be called more than once, and at the same
// time as Alive.
func (c *Credentials) Close() error {
	if c == nil {
		return nil
	}
	return c.process.close()
}

// ofSocket is what read learns from the descriptor of c.
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
