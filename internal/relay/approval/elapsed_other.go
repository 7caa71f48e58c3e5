//go:build !linux

package approval

import "time"

// elapsed returns a clock of the time since now, without suspensions.
func elapsed() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
