package peer

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// Terminal reports whether a process of this machine has a controlling terminal whose
// session it still belongs to: the leader of the session is the process itself or above
// it. It is observed, so it may refuse and never allow by itself.
func Terminal(c *attest.Credentials) bool {
	chain, err := Ancestors(c)
	if err != nil {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(c.PID)) + "/stat")
	if err != nil || !c.Alive() {
		return false
	}
	f := attest.StatFields(b) // from the state on: parent, group, session, terminal
	if len(f) < 5 || string(f[4]) == "0" {
		return false
	}
	leader := "/" + string(f[3]) + "@"
	return slices.ContainsFunc(chain, func(process string) bool { return strings.Contains(process, leader) })
}
