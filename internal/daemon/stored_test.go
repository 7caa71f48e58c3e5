package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// TestAFailedAttemptAtTheDatabaseLeavesNothing: while a part that needs the database cannot be
// opened, the attempts add nothing to what Close does.
func TestAFailedAttemptAtTheDatabaseLeavesNothing(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	d := &Daemon{log: slog.New(slog.DiscardHandler), offline: true}
	d.o = Options{StateDir: state, Config: &config.Config{}, Log: d.log}
	d.o.Config.Agent.Enabled, d.o.Config.Store.AnyFilesystem = true, true
	t.Cleanup(d.Close)
	for _, open := range []func() error{d.openState, d.openProof, d.openAudit} {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(state, "node.key")
	before := len(d.cleanup.todo)
	for what, spoil := range map[string]func() error{
		"the key of messaging is damaged": func() error { return os.WriteFile(key, []byte("short"), 0o600) },
		"it is a directory":               func() error { return os.Mkdir(key, 0o700) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := (storedParts{d}).start(t.Context()); err == nil {
				t.Fatalf("%s: it starts", what)
			}
			if n := len(d.cleanup.todo); n != before {
				t.Errorf("%s: %d functions are left, and %d before", what, n, before)
			}
		}
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
	}
}
