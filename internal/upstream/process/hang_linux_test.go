package process

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAHangingMountIsNamed: while a sandbox is built, the path whose file system does not answer is known.
func TestAHangingMountIsNamed(t *testing.T) {
	withMounts(t, func(t *testing.T, dir string) {
		fd := fuse(t, dir+"/hangs")
		for name, box := range map[string]Sandbox{"read": {Read: []string{dir + "/hangs"}}, "write": {Write: []string{dir + "/hangs"}}, "named": {Mode: Contain, Named: []string{dir + "/hangs"}}} {
			path := make(chan string, 1)
			asks := newPatience(time.Second, func(at string) { path <- at }, func() {})
			go func() { _, _ = newView(&plan{Sandbox: box}, "/bin/true", asks) }()
			if got := <-path; got != dir+"/hangs" {
				t.Errorf("%s: %s does not answer", name, got)
			}
		}
		must(0, unix.Close(fd)) // ends what waits
	})
}

// TestAViewInTimeNamesNothing: a patience that has ended does not report.
func TestAViewInTimeNamesNothing(t *testing.T) {
	t.Parallel()
	asks := newPatience(time.Hour, func(string) { t.Error("it was reported") }, func() {})
	asks.ask("/")
	asks.end()
	if asks.timer.Stop() {
		t.Error("it goes on")
	}
}

// TestAHangingMountStopsTheStart: the start of a server with such a grant fails with the path and what to do.
func TestAHangingMountStopsTheStart(t *testing.T) {
	withMounts(t, func(t *testing.T, dir string) {
		fd := fuse(t, dir+"/hangs")
		defer unix.Close(fd)
		r := must(NewRunner(Options{Self: self(), Private: dir}))
		_, err := r.Start(Spec{Server: "s", Path: "/bin/true", Sandbox: Sandbox{Mode: Contain, Read: []string{dir + "/hangs"}}})
		if err == nil || !strings.Contains(err.Error(), dir+"/hangs does not answer") {
			t.Errorf("the start: %v", err)
		}
	})
}
