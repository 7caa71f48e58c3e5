package peer

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Terminal reports whether the process of c has a controlling terminal and the leader of
// its session is the process itself or above it. It is observed, so it may refuse and
// never allow by itself.
func Terminal(c *attest.Credentials) bool {
	chain, err := Ancestors(c)
	if err != nil {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(c.PID)) + "/stat")
	if err != nil || !c.Alive() {
		return false
	}
	f := attest.StatFields(b) // begins with the state: state, parent, group, session, terminal
	if len(f) < 5 || string(f[4]) == "0" {
		return false
	}
	leader := "/" + string(f[3]) + "@"
	return slices.ContainsFunc(chain, func(process string) bool { return strings.Contains(process, leader) })
}
