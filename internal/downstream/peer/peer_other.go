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

// ErrLocked: another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// ErrInUse: something answers on that socket, or it is no socket of ours.
var ErrInUse = errors.New("the path is in use")

// OwnerOfTCP cannot tell on this system: ErrUnavailable.
func OwnerOfTCP(local, remote netip.AddrPort) (uint32, error) { return 0, ErrUnavailable }

// PrivateDir cannot check an owner on this system: ErrUnsupported.
func PrivateDir(path string) (*os.File, error) { return nil, attest.ErrUnsupported }

// Owner is not known on this system.
func Owner(fi fs.FileInfo) (uid, gid uint32, ok bool) { return 0, 0, false }

// Lock is not known on this system: ErrUnsupported.
func Lock(dir *os.File, name string, wait time.Duration) (*os.File, error) {
	return nil, attest.ErrUnsupported
}

// ClearSocket cannot check an owner on this system: ErrUnsupported.
func ClearSocket(path string) error { return attest.ErrUnsupported }

// ProtectSelf has nothing to switch on here.
func ProtectSelf() error { return nil }

// StampOf cannot tell one file from another on this system: ErrUnsupported.
func StampOf(path string) (Stamp, error) { return Stamp{}, attest.ErrUnsupported }

// StampOfFile cannot tell one file from another on this system: ErrUnsupported.
func StampOfFile(f *os.File) (Stamp, error) { return Stamp{}, attest.ErrUnsupported }

// NoSuchAddress is not known on this system.
func NoSuchAddress(err error) bool { return false }
