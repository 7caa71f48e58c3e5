package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// nowhere returns functions that open an output on which every write fails.
func nowhere(t *testing.T) map[string]func() *os.File {
	return map[string]func() *os.File{
		"a pipe without a reader": func() *os.File {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			return w
		},
		"a full disk": func() *os.File {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			return f
		},
	}
}

// TestATokenThatIsNotPrintedChangesNothing: if the output is lost, the command fails, no new token is
// accepted, and the present ones stay as they are.
func TestATokenThatIsNotPrintedChangesNothing(t *testing.T) {
	t.Parallel()
	for where, open := range nowhere(t) {
		for _, args := range [][]string{{"new", "fresh"}, {"new", "fresh", "--json"}, {"new", "ci", "--overlap", "24h"},
			{"new", "ci", "--overlap", "0s", "--json"}, {"new", "brief", "--overlap", "1h", "--expires", "2h"}} {
			t.Run(fmt.Sprint(where, args), func(t *testing.T) {
				t.Parallel()
				b := &tokenBox{t, []string{"HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0", "DOORWARD_STATE_DIR=" + t.TempDir()}}
				for _, first := range [][]string{{"new", "ci", "--scope", "agent"}, {"new", "brief", "--expires", "30m"}} {
					if out, err := b.command(first...).CombinedOutput(); err != nil {
						t.Fatalf("%v %s", err, out)
					}
				}
				before := b.list()
				var errs strings.Builder
				cmd, out := b.command(args...), open()
				cmd.Stdout, cmd.Stderr = out, &errs
				err := cmd.Run()
				out.Close()
				var status *exec.ExitError
				if !errors.As(err, &status) || status.ExitCode() != exitFailed || strings.Contains(errs.String(), "is accepted until") {
					t.Errorf("%v: %s", err, errs.String())
				}
				after := slices.DeleteFunc(b.list(), func(l tokenLine) bool { return l.Revoked })
				if !slices.Equal(before, after) {
					t.Errorf("%+v became %+v", before, after)
				}
			})
		}
	}
}
