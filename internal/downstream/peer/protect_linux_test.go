package peer

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Another process of the same user reads a secret out of an ordinary process,
// and not out of one that protects itself.
func TestAProtectedProcessCannotBeReadByItsOwnUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	open, shut, spy := newPuppet(t, asUID(65534), ""), newPuppet(t, asUID(65534), ""), newPuppet(t, asUID(65534), "")
	shut.do(t, "protect")
	for _, order := range [][2]string{{"read", "environ"}, {"read", "maps"}, {"list", "fd"}, {"open", "mem"}, {"attach", ""}} {
		for _, target := range []puppet{open, shut} {
			path := fmt.Sprintf("/proc/%d/%s", target.Process.Pid, order[1])
			spy.tell(t, order[0], path)
			answer := spy.line(t, "")
			if refused := strings.HasPrefix(answer, "failed"); refused != (target == shut) {
				t.Errorf("%s %s, protected %v: %s", order[0], order[1], target == shut, answer)
			}
		}
	}
	for _, name := range []string{"stat", "cmdline", "comm"} { // no secret belongs there
		spy.do(t, "read", fmt.Sprintf("/proc/%d/%s", shut.Process.Pid, name))
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", shut.Process.Pid))
	if err != nil || !regexp.MustCompile(`(?m)^Max core file size +0 +0 `).Match(limits) {
		t.Errorf("%v, limits:\n%s", err, limits)
	}
}

// What a protected daemon needs of itself still works, without root too.
func TestAProtectedProcessStillLooksAtOthers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	path := openDir(t) + "/s"
	d := start(t, asUID(12345), "observe-protected", path)
	d.line(t, "ready")
	newPuppet(t, asUID(12345), path)
	if got := d.line(t, ""); !strings.HasPrefix(got, "exe true digest true image true start true cgroup true") {
		t.Errorf("%s", got)
	}
}
