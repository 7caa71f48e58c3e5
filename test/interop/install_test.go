//go:build interop

package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

// TestInstalled: a client reads the entry that `doorward install` writes into its user's
// file. The client lists Doorward beside its earlier server, and its model calls a tool
// through the entry. `doorward uninstall` restores the file.
func TestInstalled(t *testing.T) {
	d := house{servers: map[string]server{"notes": stdio(fixture.Recorder(t, "legacy"), nil)}}.start(t)
	listed(t, d, words("notes"))
	for _, c := range fixture.Clients() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			on := client{Client: c, d: d, home: t.TempDir(), project: t.TempDir(), model: fixture.NewModel(t, echoed(c)...)}
			path := on.Lives(t, on.home, on.project, on.model)
			before := text(t, path)
			on.doorward(t, "install", c.Name, "--yes")
			on.doorward(t, "uninstall", c.Name, "--yes")
			restored(t, path, before)
			on.doorward(t, "install", c.Name, "--yes")
			on.lists(t, true)
			on.calls(t)
			on.doorward(t, "uninstall", c.Name, "--yes")
			on.lists(t, false)
			if !c.Rewrites {
				restored(t, path, before)
			}
		})
	}
}

// TestInstalledInAProject: the same holds for the file of a project. Where a client asks a
// person before it uses such a file, no tool is called.
func TestInstalledInAProject(t *testing.T) {
	d := house{servers: map[string]server{"notes": stdio(fixture.Recorder(t, "legacy"), nil)}}.start(t)
	listed(t, d, words("notes"))
	for _, c := range fixture.Clients() {
		if c.Project == "" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			on := client{Client: c, d: d, home: t.TempDir(), project: t.TempDir(), model: fixture.NewModel(t, echoed(c)...)}
			path := on.Works(t, on.home, on.project, on.model)
			before := text(t, path)
			on.doorward(t, "install", c.Name, "--project", "--yes")
			on.lists(t, true)
			if !c.Asks {
				on.calls(t)
			}
			on.doorward(t, "uninstall", c.Name, "--project", "--yes")
			on.lists(t, false)
			restored(t, path, before)
		})
	}
}

// TestInstalledClientsGoOn: every call through the entry of `doorward install` is answered at
// the first attempt after the daemon was killed, and after it was stopped, between two calls
// of one run. These are the clients that TestAgentProgramsGoOn does not run.
func TestInstalledClientsGoOn(t *testing.T) {
	for _, c := range fixture.Clients() {
		if !slices.Contains(words("cline continue copilot qwen"), c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			yaml := house{servers: map[string]server{"notes": stdio(fixture.Recorder(t, "legacy"), nil)}}.yaml(t)
			d := doortest.Start(t, yaml, doortest.Options{})
			listed(t, d, words("notes"))
			again := func() { d = doortest.Start(t, yaml, doortest.Options{Dir: d.Dir}) }
			call := func(turn int, before func()) fixture.Step {
				return func(fixture.Talk) fixture.Answer {
					before()
					return fixture.Use(c.Tool, map[string]any{"turn": turn})
				}
			}
			m := fixture.NewModel(t, call(0, func() {}), call(1, func() { d.Kill9(); again() }), call(2, func() { d.Stop(); again() }),
				func(fixture.Talk) fixture.Answer { return fixture.Say("done") })
			on := client{Client: c, d: d, home: t.TempDir(), project: t.TempDir(), model: m}
			on.Lives(t, on.home, on.project, m)
			on.doorward(t, "install", c.Name, "--yes")
			on.run(t, on.Turn(t)...)
			inOrder(t, m.Seen(), 3)
		})
	}
}

// client is one client with a home, a project and a model of its own.
type client struct {
	fixture.Client
	d             *doortest.Daemon
	model         *fixture.Model
	home, project string
}

// through is the argument that the model gives to the tool echo, which returns it.
const through = "through-5c1e"

// echoed is a script that calls Doorward's tool once it is offered.
func echoed(c fixture.Client) []fixture.Step {
	call := func(talk fixture.Talk) fixture.Answer {
		if !slices.Contains(talk.Tools, c.Tool) {
			return fixture.Say("the tool is not offered")
		}
		return fixture.Use(c.Tool, map[string]any{"word": through})
	}
	return []fixture.Step{call, func(fixture.Talk) fixture.Answer { return fixture.Say("done") }}
}

// lists checks the client's own list of servers. It does nothing for a client without such
// a command.
func (c client) lists(t *testing.T, doorward bool) {
	t.Helper()
	args := c.List(t)
	if args == nil {
		return
	}
	out := c.run(t, args...)
	if !strings.Contains(out, "other") || strings.Contains(out, "doorward") != doorward {
		t.Errorf("the list must have the earlier server, and Doorward: %t\n%s", doorward, out)
	}
}

// calls runs a prompt of the client and checks that the tool was called once. A client that
// may start without the tools of a slow server has six attempts. Without a Tool it does
// nothing.
func (c client) calls(t *testing.T) {
	t.Helper()
	if c.Tool == "" {
		return
	}
	out := c.run(t, c.Turn(t)...)
	for attempt := 1; c.Late && len(c.model.Seen()) == 0 && attempt < 6; attempt++ {
		out = c.run(t, c.Turn(t)...)
	}
	if seen := c.model.Seen(); len(seen) != 1 || !strings.Contains(seen[0], through) {
		t.Errorf("the model saw %q of the tool %s; it was shown %+v\n%s", seen, c.Tool, c.model.Talks(), out)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// restored fails the test unless a file is as before and no copy of it is left.
func restored(t *testing.T, path, before string) {
	t.Helper()
	if diff := cmp.Diff(before, text(t, path)); diff != "" {
		t.Errorf("%s is not as before: %s", filepath.Base(path), diff)
	}
	if left, err := filepath.Glob(path + ".doorward-*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// doorward runs a command of Doorward on the files of the home and the project. The entry
// that it writes names the daemon's directory, so the client needs no environment variable.
func (c client) doorward(t *testing.T, args ...string) {
	t.Helper()
	c.run(t, append([]string{c.d.Bin, "--runtime-dir", c.d.Runtime}, args...)...)
}

// run runs a program in the project and the home.
func (c client) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = c.project, 10*time.Second
	cmd.Env = fixture.ClientEnv(c.home, c.Env(c.model)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(args[0]), args[1:], err, out)
	}
	return string(out)
}
