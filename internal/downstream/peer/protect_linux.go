package peer

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ProtectSelf protects this process from other processes of its user: they can no longer
// trace it or read its memory, environment and descriptors, and it leaves no core file.
// It does not restrict root. Child processes are not covered: exec makes a process
// dumpable again. A child that sets no core limit inherits this one.
//
// Call it before any secret is read. Limit: this process can then start a child with new
// user namespaces only through another child without them.
func ProtectSelf() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding this process from others of its user: %w", err)
	}
	return noCore()
}
