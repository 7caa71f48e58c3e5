package approval

import (
	"os"
	"strings"
	"time"
)

// elapsed returns a clock of the time since the start of the machine, suspensions included. A
// system without /proc/uptime has one of the time since now, without them.
func elapsed() func() time.Duration {
	begun := time.Now()
	return func() time.Duration {
		text, _ := os.ReadFile("/proc/uptime")
		seconds, _, _ := strings.Cut(string(text), " ")
		if d, err := time.ParseDuration(seconds + "s"); err == nil {
			return d
		}
		return time.Since(begun)
	}
}
