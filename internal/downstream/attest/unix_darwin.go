package attest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OfUnix returns the kernel's facts about the process that connected c: LOCAL_PEERCRED, uid
// and groups copied at connect. Pid and instance ("PID.VERSION", where an exec makes a new
// version) belong to the process that used the peer's socket last, read now
// (LOCAL_PEERTOKEN), so they are observed. macOS has no handle on a process.
func OfUnix(c *net.UnixConn) (*Credentials, error) {
	return ofSocket(c, attest)
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
	if t, err := peerToken(fd); err == nil {
		c.PID, c.Instance, c.process.token = t.pid, t.instance(), t
	} else if pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
		c.PID = int32(pid)
	}
	return c, nil
}

// token is the part of an audit token that identifies a process instance.
type token struct {
	known   bool
	pid     int32
	version uint32
}

func (t token) instance() string {
	return strconv.Itoa(int(t.pid)) + "." + strconv.FormatUint(uint64(t.version), 10)
}

// auditToken is audit_token_t: eight words, of which the sixth is the pid and the eighth
// the version of the pid.
type auditToken [8]uint32

// peerToken reads LOCAL_PEERTOKEN, which x/sys does not wrap.
func peerToken(fd int) (token, error) {
	var t auditToken
	size := uint32(unsafe.Sizeof(t))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_LOCAL, unix.LOCAL_PEERTOKEN,
		uintptr(unsafe.Pointer(&t)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return token{}, fmt.Errorf("reading LOCAL_PEERTOKEN: %w", errno)
	}
	if size != uint32(unsafe.Sizeof(t)) {
		return token{}, errors.New("reading LOCAL_PEERTOKEN: not an audit token")
	}
	return token{known: true, pid: int32(t[5]), version: t[7]}, nil
}

func tokenOf(c *net.UnixConn) (t token, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return token{}, err
	}
	outer := raw.Control(func(fd uintptr) { t, err = peerToken(int(fd)) })
	return t, errors.Join(outer, err)
}

// UIDsMapped is always true: macOS has no user namespaces.
func UIDsMapped() (bool, error) { return true, nil }

// ListenControl does nothing on macOS; it fits net.ListenConfig.Control. The caller's chmod
// sets the socket's mode.
func ListenControl(network, address string, c syscall.RawConn) error { return nil }

// process is not a handle. It holds whether the connection was closed, and the audit token
// at the accept.
type process struct {
	closed atomic.Bool
	token  token
}

func (p *process) alive() bool { return !p.closed.Load() }

func (p *process) close() error {
	p.closed.Store(true)
	return nil
}

// OnClose is false: there is no handle whose end f could follow.
func (c *Credentials) OnClose(f func()) bool { return false }
