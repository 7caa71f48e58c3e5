package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// TestAHangingFileSystemBlocksNoStatus: while a file system of a server's paths does not answer,
// its lines and its status are handled in time and say so; other servers are not affected.
func TestAHangingFileSystemBlocksNoStatus(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "helper")
	if err := os.WriteFile(missing, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &config.Server{Kind: "stdio", Path: "/bin/true", Doorward: config.Handling{Sandbox: process.Contain}}
		box := sandboxOf(&config.Config{}, "home", s)
		u := new(unseen)
		answer := make(chan struct{})
		u.lookups.Do("hangs", pathPatience, func() { <-answer })
		for _, server := range []string{"hangs", "other"} {
			u.note(server, missing+": not found")
		}
		unknown := []string{"its paths are not known: the file system of one of them does not answer; mount it again"}
		if got := u.of("hangs", s, box); !slices.Equal(got, unknown) {
			t.Errorf("hints %q", got)
		}
		hint := []string{missing + ": " + remedy(missing, "")}
		if got := u.of("other", s, box); !slices.Equal(got, hint) {
			t.Errorf("hints of another server %q", got)
		}
		close(answer)
		synctest.Wait()
		u.note("hangs", missing+": not found")
		if got := u.of("hangs", s, box); !slices.Equal(got, hint) {
			t.Errorf("hints afterwards %q", got)
		}
	})
}
