//go:build unix

package process

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPathsThatAreHiddenAnyway: Further keeps exactly the paths that Options.Hide does not hide
// where they really are.
func TestPathsThatAreHiddenAnyway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"own/sub", "owner", "else"} {
		if err := os.MkdirAll(at(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"own/out": "else", "in": "own/sub"} {
		if err := os.Symlink(at(to), at(link)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewRunner(Options{Hide: []string{at("own")}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	hidden := []string{at("own"), at("own/token"), at("own/sub/none/token"), at("in/token")}
	further := []string{at("owner/token"), at("own/out/token"), at("else/token"), dir}
	if got := r.Further(slices.Concat(hidden, further)); !slices.Equal(got, further) {
		t.Errorf("got %q, want %q", got, further)
	}
}
