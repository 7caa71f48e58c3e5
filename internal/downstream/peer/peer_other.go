//go:build !linux && !darwin

package peer

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// MaxSocketPath is the longest path, in bytes, that a socket can be bound to.
const MaxSocketPath = 103

// ErrLocked: another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// ErrInUse: something answers on that socket, or it is no socket of ours.
var ErrInUse = errors.New("the path is in use")

// OfUnix knows no peer credentials on this system: ErrUnsupported.
func OfUnix(c *net.UnixConn) (*Credentials, error) { return nil, ErrUnsupported }

// UIDsMapped is not known on this system: ErrUnsupported.
func UIDsMapped() (bool, error) { return false, ErrUnsupported }

// OwnerOfTCP cannot tell on this system: ErrUnavailable.
func OwnerOfTCP(local, remote netip.AddrPort) (uint32, error) { return 0, ErrUnavailable }

// ListenControl refuses: without peer credentials the socket stays shut.
func ListenControl(network, address string, c syscall.RawConn) error { return ErrUnsupported }

// PrivateDir cannot check an owner on this system: ErrUnsupported.
func PrivateDir(path string) (*os.File, error) { return nil, ErrUnsupported }

// Owner is not known on this system.
func Owner(fi fs.FileInfo) (uid, gid uint32, ok bool) { return 0, 0, false }

// Lock is not known on this system: ErrUnsupported.
func Lock(dir *os.File, name string, wait time.Duration) (*os.File, error) {
	return nil, ErrUnsupported
}

// ClearSocket cannot check an owner on this system: ErrUnsupported.
func ClearSocket(path string) error { return ErrUnsupported }

// ProtectSelf has nothing to switch on here.
func ProtectSelf() error { return nil }

type process struct{}

func (p *process) alive() bool  { return false }
func (p *process) close() error { return nil }

// StampOf cannot tell one file from another on this system: ErrUnsupported.
func StampOf(path string) (Stamp, error) { return Stamp{}, ErrUnsupported }

// StampOfFile cannot tell one file from another on this system: ErrUnsupported.
func StampOfFile(f *os.File) (Stamp, error) { return Stamp{}, ErrUnsupported }

// NoSuchAddress is not known on this system.
func NoSuchAddress(err error) bool { return false }
