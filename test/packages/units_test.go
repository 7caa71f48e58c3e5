//go:build packages

package packages

import (
	"os/exec"
	"strings"
	"testing"
)

// systemd-analyze rates the exposure of the system units below a threshold, which is ten
// times the exposure that it prints.
func TestTheUnitsOfTheMachineAreHardened(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze (Debian's package systemd)")
	}
	for unit, threshold := range map[string]string{"doorward.service": "15", "doorward-servers.service": "26"} {
		c := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+threshold, "packaging/system/"+unit)
		c.Dir = moduleRoot(t)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		_, level, _ := strings.Cut(string(out), "Overall exposure level for ")
		t.Logf("measured: %s", strings.TrimSpace(level))
	}
}
