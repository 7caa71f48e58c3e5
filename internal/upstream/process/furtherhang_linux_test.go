package process

import (
	"log/slog"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAHangingMountLeavesTheHiddenPaths: a path whose file system does not answer is further, as it is when the file
// system answers, and the other paths are told apart.
func TestAHangingMountLeavesTheHiddenPaths(t *testing.T) {
	withMounts(t, func(t *testing.T, dir string) {
		must(0, os.MkdirAll(dir+"/own", 0o700))
		fd := fuse(t, dir+"/hangs")
		r := must(NewRunner(Options{Self: self(), Hide: []string{dir + "/own"}, Private: dir, Log: slog.New(slog.DiscardHandler)}))
		want := []string{dir + "/hangs/secret", dir + "/other"}
		for range 2 {
			if got := r.Further([]string{dir + "/own/token", dir + "/hangs/secret", dir + "/other"}); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		must(0, unix.Close(fd)) // ends what waits
	})
}
