//go:build interop

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// The program that make builds runs its supervisors from the small program that is
// embedded in it, which needs less than half of the memory. A missing image, or one that
// this system does not execute, has no other effect than memory and a line of the log.
func TestSupervisorsAreAProgramOfTheirOwn(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(doortest.ModuleRoot(t), "bin", "notes-server")
	d := doortest.Start(t, "mcpServers: {notes: {command: "+notes+"}}\n", doortest.Options{})
	if out, err := d.Command("call", "notes", "add_note", "title=Milk").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	own, anonymous := 0, 0
	for _, pid := range below(d.PID()) {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			t.Fatal(err)
		}
		if exe == notes {
			continue
		}
		if !strings.HasPrefix(exe, "/memfd:doorward-child") {
			t.Errorf("a supervisor runs %s", exe)
		}
		own++
		anonymous += ownMemory(t, pid)
	}
	if own != 2 {
		t.Errorf("the daemon has %d supervisors, want two", own)
	}
	if anonymous > 4<<10 {
		t.Errorf("the supervisors have %d KiB of their own", anonymous)
	}
	t.Logf("measured: two supervisors with %d KiB of their own", anonymous)
}

// ownMemory is the anonymous memory of a process, in KiB.
func ownMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nRssAnon:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
