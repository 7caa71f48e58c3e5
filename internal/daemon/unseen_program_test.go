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

// TestAMissingPathWithSpaces shows that status names a path with spaces that an error puts between
// quotation marks, and not the directory whose name is its beginning.
func TestAMissingPathWithSpaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "Müller Projekte", "über uns")
	for _, path := range []string{missing, filepath.Join(dir, "Müller")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &config.Server{Kind: "stdio", Doorward: config.Handling{Sandbox: process.Contain}}
	for _, line := range []string{
		"Error: ENOENT: no such file or directory, scandir '" + missing + "'",
		`open "` + missing + `": no such file or directory`,
		"it's not there: `" + missing + "`",
	} {
		u := new(unseen)
		u.note("s", line)
		hints := u.of("s", s, sandboxOf(&config.Config{}, "home", s))
		if len(hints) != 1 || hints[0] != missing+": "+remedy(missing, "") {
			t.Errorf("%s: hints %q, want one for %s", line, hints, missing)
		}
	}
}
