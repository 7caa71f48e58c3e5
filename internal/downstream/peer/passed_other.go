//go:build !linux

package peer

import (
	"os"
	"syscall"
)

// PassedSockets finds none on this system.
func PassedSockets() []*os.File { return nil }

// ListenerPID is not known on this system: ErrUnsupported.
func ListenerPID(c syscall.RawConn) (int, error) { return 0, ErrUnsupported }
