package daemon

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAFileThatCannotBeWrittenIsLoggedOnceWithACount: while the list of clients or the sessions
// cannot be stored, as on a full disk, the log has one line for each five minutes.
func TestAFileThatCannotBeWrittenIsLoggedOnceWithACount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		dir := t.TempDir()
		k, err := openKeeper(dir, log)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		c := &clients{path: filepath.Join(dir, "none", "clients.json"), log: log}
		fail := func() string {
			out.Reset()
			for range 3 {
				c.changed.Store(true)
				c.save()
				k.Keep("a", []byte("content"))
			}
			return out.String()
		}
		for _, want := range []string{"since_then=0", "", "since_then=5"} {
			got := fail()
			lines := 2
			if want == "" {
				lines = 0
			}
			if strings.Count(got, "\n") != lines || strings.Count(got, want) < lines {
				t.Errorf("%q: %q", want, got)
			}
			time.Sleep(repeatedTime / 2)
		}
	})
}
