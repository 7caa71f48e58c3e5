package approval

import (
	"os"
	"strings"
	"time"
)

// elapsed returns a clock of the time since the start of the machine, suspensions included. It
// opens /proc/uptime once, and so goes on when the process has no descriptors left. Without that
// file, or while it cannot be read, the time goes on from the beginning without suspensions.
func elapsed() func() time.Duration {
	begun := time.Now()
	file, _ := os.Open("/proc/uptime") // nil cannot be read
	first, _ := uptime(file)
	return func() time.Duration {
		if d, ok := uptime(file); ok {
			return d
		}
		return first + time.Since(begun)
	}
}

func uptime(file *os.File) (time.Duration, bool) {
	var b [64]byte
	n, _ := file.ReadAt(b[:], 0) // it ends before 64 bytes
	seconds, _, _ := strings.Cut(string(b[:n]), " ")
	d, err := time.ParseDuration(seconds + "s")
	return d, err == nil
}
