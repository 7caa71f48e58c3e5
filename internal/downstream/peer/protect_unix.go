//go:build linux || darwin

package peer

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func noCore() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("switching core files off: %w", err)
	}
	return nil
}
