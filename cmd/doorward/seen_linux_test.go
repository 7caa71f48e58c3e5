package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// seesHeld waits until the call with this argument is held, and returns its number.
func seesHeld(t *testing.T, d *mailDaemon, arg string) (n uint64) {
	t.Helper()
	var out string
	if !poll(mailSoon, func() bool {
		out, _ = d.human("doorward", "pending")
		for line := range strings.Lines(out) {
			if strings.Contains(line, arg) {
				_, err := fmt.Sscan(line, &n)
				return err == nil
			}
		}
		return false
	}) {
		t.Fatalf("no call with %s is held:\n%s", arg, out)
	}
	return n
}

// atOwnTerminal runs a command at a terminal of its own, below the test.
func atOwnTerminal(t *testing.T, d *mailDaemon, argv ...string) (out string, status int) {
	t.Helper()
	cmd := exec.Command("pty", argv...)
	cmd.Dir, cmd.Env = d.dir, d.env
	b, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// TestADecisionIsAboutTheCallThatWasSeen: a number that the operator read before the daemon
// ended, in whatever way, decides no call that is held afterwards.
func TestADecisionIsAboutTheCallThatWasSeen(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*mailDaemon){"stopped": (*mailDaemon).stop, "killed": (*mailDaemon).kill} {
		for _, word := range []string{"approve", "deny"} {
			t.Run(how+" "+word, func(t *testing.T) {
				t.Parallel()
				d := heldCount(t)
				_ = hold(t, d, "n=1")
				before := seesHeld(t, d, `{"n":1}`)
				end(d)
				d.start()
				over := hold(t, d, "n=2")
				after := seesHeld(t, d, `{"n":2}`)
				out, status := atOwnTerminal(t, d, "doorward", word, fmt.Sprint(before))
				if status != exitFailed || !strings.Contains(out, "no held call or approval has that number") || len(over) != 0 {
					t.Errorf("%s %d: status %d, %s", word, before, status, out)
				}
				if out, status := atOwnTerminal(t, d, "doorward", "approve", fmt.Sprint(after)); status != 0 {
					t.Errorf("approve %d: status %d, %s", after, status, out)
				}
				if a := ended(t, over); !strings.Contains(a.out, "call 1") {
					t.Errorf("the call that was approved: %v %s", a.err, a.out)
				}
			})
		}
	}
}
