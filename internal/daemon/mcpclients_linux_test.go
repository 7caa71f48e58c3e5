package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// running starts a process that ends with end or the test, and returns its name.
func running(t *testing.T) (name string, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(end)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	start, err := strconv.ParseUint(string(attest.StatFields(b)[19]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return attest.Instance(int32(cmd.Process.Pid), start), end
}

func clientsAt(t *testing.T, path string) *clients {
	t.Helper()
	c := &clients{path: path, log: slog.New(slog.DiscardHandler)}
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRunningClientsAreKnownToTheNextRun: the processes of running clients are read again, those
// of ended ones are not.
func TestRunningClientsAreKnownToTheNextRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), clientsFile)
	direct, _ := running(t)
	shim, _ := running(t)
	aboveShim, _ := running(t)
	call, _ := running(t)
	shell, _ := running(t)
	ended, end := running(t)
	first := clientsAt(t, path)
	for _, of := range []client{{Processes: []string{direct}}, {Processes: []string{shim, aboveShim}},
		{Processes: []string{call, shell}, Command: true}, {Processes: []string{ended}}} {
		if !first.add(of) || first.add(of) {
			t.Errorf("%v: it is new once", of)
		}
		first.keep()
	}
	first.save()
	if err := os.Chmod(filepath.Dir(path), 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // otherwise the directory cannot be removed
		if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
			t.Error(err)
		}
	})
	end()
	next := clientsAt(t, path)
	for what, c := range map[string]struct {
		process              string
		person, stillAPerson bool
	}{
		"a client": {direct, false, false}, "a shim": {shim, false, false}, "above a shim": {aboveShim, false, false},
		"a command": {call, false, true}, "the shell of a command": {shell, false, true}, "an ended client": {ended, true, true}, "another": {peer.First(), true, true},
	} {
		if got := !next.above([]string{"x", c.process}, true); got != c.person {
			t.Errorf("%s: a person %v", what, got)
		}
		if got := !next.above([]string{"x", c.process}, false); got != c.stillAPerson {
			t.Errorf("%s: still a person %v", what, got)
		}
	}
	if next.add(client{Processes: []string{direct}}) {
		t.Error("a client of an earlier run is new")
	}
}

// TestClientsFileOfAnOlderVersion: a file with only the processes above clients is read.
func TestClientsFileOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), clientsFile)
	b, err := json.Marshal(map[string]map[uint32]oldest{peer.First(): {7: {Start: 8, PID: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{string(b): 1, "{}": 0} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := clientsAt(t, path).orphans.oldestBelow; len(got) != want || want == 1 && got[peer.First()][7] != (oldest{8, 9}) {
			t.Errorf("%s: %v", text, got)
		}
	}
	if err := os.WriteFile(path, []byte(`{"above":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&clients{path: path}).load(); err == nil {
		t.Error("a damaged file is taken for an empty one")
	}
}
