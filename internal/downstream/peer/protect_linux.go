package peer

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ProtectSelf protects this process from other processes of its user: they can no
// longer trace it or read its memory, environment and descriptors, and it leaves
// no core. It does not restrict root. Child processes are not covered: exec makes
// a process dumpable again, and a child without a core limit of its own keeps
// this one.
//
// Call it before any secret is read. Limit: a child with new user namespaces
// cannot be started from here directly, only through a child without.
func ProtectSelf() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding this process from others of its user: %w", err)
	}
	return noCore()
}
