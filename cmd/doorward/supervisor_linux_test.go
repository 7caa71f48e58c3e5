package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestASupervisorDoesNotInitialiseTheProgram verifies that a supervisor does not initialise
// package daemon. A contained server has two supervisors, and each would spend that memory
// and time.
func TestASupervisorDoesNotInitialiseTheProgram(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	initialised := func(args ...string) string {
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, _ := cmd.CombinedOutput() // it ends with a status of its own: it has no control pipe
		return string(out)
	}
	const heavy = "init github.com/doorward/doorward/internal/daemon "
	if out := initialised("child-supervisor", "--", "/bin/true"); strings.Contains(out, heavy) || !strings.Contains(out, "no control pipe") {
		t.Errorf("a supervisor initialises the daemon, or did not run:\n%s", out)
	}
	if out := initialised("-test.list", "^$"); !strings.Contains(out, heavy) {
		t.Errorf("another start does not, so this test looks at something else:\n%.2000s", out)
	}
}
