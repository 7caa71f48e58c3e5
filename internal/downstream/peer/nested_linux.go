package peer

import (
	"os"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Nested reports whether the peer is in a pid namespace below this process's, as
// every contained process is. What cannot be determined counts as not nested: of
// a process that protects itself the kernel shows this and little else.
func Nested(c *attest.Credentials) bool {
	if c.PID <= 0 {
		return false
	}
	theirs, ours := depth(strconv.Itoa(int(c.PID))), depth("self")
	return ours > 0 && theirs > ours
}

// depth is how many pid namespaces a process is in, from that of /proc down; 0:
// unknown.
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
