//go:build !linux

package peer

import (
	"os"
	"syscall"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// PassedSockets returns none on this system.
func PassedSockets() []*os.File { return nil }

// ListenerPID returns attest.ErrUnsupported on this system.
func ListenerPID(c syscall.RawConn) (int, error) { return 0, attest.ErrUnsupported }
