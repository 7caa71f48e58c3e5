package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// TestAServersOwnProgramIsNotMissing shows that status does not ask to grant the program of a
// server, which the server sees, when an error names it beside a path that is missing.
func TestAServersOwnProgramIsNotMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, missing := filepath.Join(dir, "serve.sh"), filepath.Join(dir, "helper")
	for _, path := range []string{program, missing} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &config.Server{Kind: "stdio", Path: program, Doorward: config.Handling{Sandbox: process.Contain}}
	u := new(unseen)
	u.note("s", program+": 3: exec: "+missing+": not found")
	hints := u.of("s", s, sandboxOf(&config.Config{}, "home", s))
	if len(hints) != 1 || hints[0] != missing+": "+remedy(missing, "") {
		t.Errorf("hints %q, want one for %s", hints, missing)
	}
}
