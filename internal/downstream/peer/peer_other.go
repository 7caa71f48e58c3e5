//go:build !linux && !darwin

package peer

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// MaxSocketPath is the longest path, in bytes, that a socket can be bound to.
const MaxSocketPath = 103

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// ErrInUse means that a process answers on the socket, or that the path is not a socket
// of this user.
var ErrInUse = errors.New("the path is in use")

// OwnerOfTCP returns ErrUnavailable on this system.
func OwnerOfTCP(local, remote netip.AddrPort) (uint32, error) { return 0, ErrUnavailable }

// PrivateDir returns ErrUnsupported: it cannot check an owner on this system.
func PrivateDir(path string) (*os.File, error) { return nil, attest.ErrUnsupported }

// Owner reports no owner on this system.
func Owner(fi fs.FileInfo) (uid, gid uint32, ok bool) { return 0, 0, false }

// Lock returns ErrUnsupported on this system.
func Lock(dir *os.File, name string, wait time.Duration) (*os.File, error) {
	return nil, attest.ErrUnsupported
}

// ClearSocket returns ErrUnsupported: it cannot check an owner on this system.
func ClearSocket(path string) error { return attest.ErrUnsupported }

// ProtectSelf does nothing on this system.
func ProtectSelf() error { return nil }

// StampOf returns ErrUnsupported on this system.
func StampOf(path string) (Stamp, error) { return Stamp{}, attest.ErrUnsupported }

// StampOfFile returns ErrUnsupported on this system.
func StampOfFile(f *os.File) (Stamp, error) { return Stamp{}, attest.ErrUnsupported }

// NoSuchAddress is false on this system.
func NoSuchAddress(err error) bool { return false }
