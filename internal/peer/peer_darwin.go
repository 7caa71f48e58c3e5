package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxSocketPath is the longest path, in bytes, that a socket can be bound to.
const MaxSocketPath = 103

// OfUnix asks the kernel who connected c: LOCAL_PEERCRED, uid and groups
// copied at connect. The pid (LOCAL_PEERPID) is the process that last used the
// peer's socket, so it is observed; there is no handle on a process and no
// instance here.
func OfUnix(c *net.UnixConn) (*Credentials, error) {
	if c == nil {
		return nil, errors.New("reading peer credentials: no connection")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reading peer credentials: %w", err)
	}
	var creds *Credentials
	var inner error
	if err := raw.Control(func(fd uintptr) { creds, inner = attest(int(fd)) }); err != nil {
		return nil, fmt.Errorf("reading peer credentials: %w", err)
	}
	return creds, inner
}

func attest(fd int) (*Credentials, error) {
	x, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("reading LOCAL_PEERCRED: %w", err)
	}
	if x.Uid == ^uint32(0) || x.Ngroups < 1 || int(x.Ngroups) > len(x.Groups) {
		return nil, ErrNoIdentity
	}
	c := &Credentials{UID: x.Uid, GID: x.Groups[0], GroupsKnown: true}
	c.Groups = append(c.Groups, x.Groups[1:x.Ngroups]...)
	if pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
		c.PID = int32(pid)
	}
	return c, nil
}

// UIDsMapped is always true: there are no user namespaces.
func UIDsMapped() (bool, error) { return true, nil }

// OwnerOfTCP has no unprivileged counterpart on macOS: ErrUnavailable.
func OwnerOfTCP(local, remote netip.AddrPort) (uint32, error) { return 0, ErrUnavailable }

// ListenControl has nothing to prepare on macOS; it fits
// net.ListenConfig.Control. The caller's chmod sets the socket's mode.
func ListenControl(network, address string, c syscall.RawConn) error { return nil }

// process is no handle, only whether the connection was closed.
type process struct{ closed atomic.Bool }

func (p *process) alive() bool { return !p.closed.Load() }

func (p *process) close() error {
	p.closed.Store(true)
	return nil
}
