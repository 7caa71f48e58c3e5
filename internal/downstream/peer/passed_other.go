//go:build !linux

package peer

import (
	"os"
	"syscall"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// PassedSockets finds none on this system.
func PassedSockets() []*os.File { return nil }

// ListenerPID is not known on this system: attest.ErrUnsupported.
func ListenerPID(c syscall.RawConn) (int, error) { return 0, attest.ErrUnsupported }
