package peer

import (
	"os"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Nested reports whether the peer is in a pid namespace below that of this process, as
// every contained process is. It is false if that cannot be determined. It can be read
// even of a process that protects itself, of which the kernel shows little else.
func Nested(c *attest.Credentials) bool {
	if c.PID <= 0 {
		return false
	}
	theirs, ours := depth(strconv.Itoa(int(c.PID))), depth("self")
	return ours > 0 && theirs > ours
}

// depth returns the number of pid namespaces that a process is in, counted from that of
// /proc; 0: unknown.
func depth(pid string) int {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(rest))
		}
	}
	return 0
}
