package peer

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/puppet"
)

// A process of the same user can read the memory of an ordinary process, and not of one that
// protects itself.
func TestAProtectedProcessCannotBeReadByItsOwnUser(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	open, shut, spy := puppet.New(t, puppet.AsUID(65534), ""), puppet.New(t, puppet.AsUID(65534), ""), puppet.New(t, puppet.AsUID(65534), "")
	shut.Do(t, "protect")
	for _, order := range [][2]string{{"read", "environ"}, {"read", "maps"}, {"list", "fd"}, {"open", "mem"}, {"attach", ""}} {
		for _, target := range []puppet.Puppet{open, shut} {
			path := fmt.Sprintf("/proc/%d/%s", target.Process.Pid, order[1])
			spy.Tell(t, order[0], path)
			answer := spy.Line(t, "")
			if refused := strings.HasPrefix(answer, "failed"); refused != (target == shut) {
				t.Errorf("%s %s, protected %v: %s", order[0], order[1], target == shut, answer)
			}
		}
	}
	for _, name := range []string{"stat", "cmdline", "comm"} { // readable by design, without secrets
		spy.Do(t, "read", fmt.Sprintf("/proc/%d/%s", shut.Process.Pid, name))
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", shut.Process.Pid))
	if err != nil || !regexp.MustCompile(`(?m)^Max core file size +0 +0 `).Match(limits) {
		t.Errorf("%v, limits:\n%s", err, limits)
	}
}

// A protected daemon without root can still observe its peers.
func TestAProtectedProcessStillLooksAtOthers(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	path := puppet.OpenDir(t) + "/s"
	d := puppet.Start(t, puppet.AsUID(12345), "observe-protected", path)
	d.Line(t, "ready")
	puppet.New(t, puppet.AsUID(12345), path)
	if got := d.Line(t, ""); !strings.HasPrefix(got, "exe true digest true image true start true cgroup true") {
		t.Errorf("%s", got)
	}
}
