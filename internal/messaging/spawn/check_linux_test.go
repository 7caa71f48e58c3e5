package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/test/doortest"
)

func scoped(name, words string) *principal.Principal {
	return principal.New(name, principal.Fact{Name: "scope", Value: words, Grade: principal.Verified}).WithLocal()
}

func TestRightsAreTheIntersectionOfAllSides(t *testing.T) {
	t.Parallel()
	owner, claimed := principal.New("uid:0"), principal.New("token:x", principal.Fact{Name: "scope", Value: "server:notes", Grade: principal.Claimed})
	l := &Launcher{Name: "l", Rights: []string{"server:notes", "tool:docs/read", "instructions"}}
	for _, c := range []struct {
		what   string
		parent *principal.Principal
		asked  []string // nil: nothing was said
		want   string
	}{
		{"all of the launcher's", owner, nil, "agent instructions server:notes tool:docs/read"},
		{"less", owner, []string{"server:notes"}, "agent server:notes"},
		{"a tool of a server", owner, []string{"tool:notes/add"}, "agent tool:notes/add"},
		{"none", owner, []string{}, "agent"},
		{"messaging, which every agent has", owner, []string{"agent"}, "agent"},
		{"a whole server for a tool", owner, []string{"server:docs"}, ""},
		{"another server", owner, []string{"server:other"}, ""},
		{"a server whose name begins the same", owner, []string{"tool:notes2/add"}, ""},
		{"administration", owner, []string{"admin"}, ""},
		{"no word at all", owner, []string{"everything"}, ""},
		{"an empty word", owner, []string{""}, ""},
		{"less than the parent has", scoped("token:t", "agent,tool:notes/add"), nil, "agent tool:notes/add"},
		{"more than the parent has", scoped("token:t", "agent,tool:notes/add"), []string{"server:notes"}, ""},
		{"what the parent has", scoped("token:t", "agent, server:notes"), []string{"server:notes"}, "agent server:notes"},
		{"a parent agent's", scoped("spawn:a", "tool:docs/read"), nil, "agent tool:docs/read"},
		{"a parent that may administer", scoped("token:t", "admin"), nil, "agent"},
		{"a scope that is only claimed", claimed, nil, "agent"},
	} {
		r := Request{Rights: c.asked, RightsGiven: c.asked != nil}
		got, err := r.rights(l, c.parent)
		if c.want == "" && code(err) != mail.RightsExceedParent || c.want != "" && strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, %v; want %q", c.what, got, err, c.want)
		}
	}
}

func TestARequestIsBoundedByItsLauncher(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	number := func(n int) *int { return &n }
	off := s.helper(process.Contain)
	off.Name, off.Refused = "off", "its command is missing"
	s.launchers(s.helper(process.Contain), off)
	for _, c := range []struct {
		what string
		r    Request
		want string
	}{
		{"nothing special", Request{Launcher: "helper"}, ""},
		{"no such launcher", Request{Launcher: "other"}, mail.LauncherUnknown},
		{"one that cannot be used", Request{Launcher: "off"}, mail.LauncherUnknown},
		{"a model", Request{Launcher: "helper", Model: "large"}, ""},
		{"a model that is not listed", Request{Launcher: "helper", Model: "--dangerously"}, mail.InvalidArgument},
		{"more time", Request{Launcher: "helper", MaxSeconds: 61}, mail.Budget},
		{"more children", Request{Launcher: "helper", MaxChildren: number(3)}, mail.Budget},
		{"no messages", Request{Launcher: "helper", MaxMessages: number(0)}, ""},
		{"negative messages", Request{Launcher: "helper", MaxMessages: number(-1)}, mail.Budget},
		{"a right beyond", Request{Launcher: "helper", Rights: []string{"server:other"}}, mail.RightsExceedParent},
		{"a directory outside", Request{Launcher: "helper", Cwd: s.dir + "/other"}, mail.CwdOutsideRoots},
		{"a directory up and down", Request{Launcher: "helper", Cwd: s.dir + "/work/../other"}, mail.CwdOutsideRoots},
		{"a relative directory", Request{Launcher: "helper", Cwd: "."}, mail.CwdOutsideRoots},
		{"a directory that is not there", Request{Launcher: "helper", Cwd: s.dir + "/work/x"}, mail.CwdOutsideRoots},
	} {
		d, err := s.Check(s.parent, c.r)
		if c.want == "" && err != nil || c.want != "" && code(err) != c.want {
			t.Errorf("%s: %+v, %v; want %s", c.what, d, err, c.want)
		}
	}
	d, err := s.Check(s.parent, Request{Launcher: "helper", MaxSeconds: 5, MaxMessages: number(0), Key: "k", Fingerprint: []byte("f")})
	if err != nil || d.MaxSeconds != 5 || d.MaxChildren != 2 || d.MaxMessages != 0 || d.Name != "" || d.Key != "k" ||
		!slices.Equal(d.Rights, []string{"agent", "server:notes"}) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := s.Check(&principal.Principal{}, Request{Launcher: "helper"}); code(err) != mail.SpawnDisabled {
		t.Errorf("a caller that is not authenticated: %v", err)
	}
	s.launchers()
	if _, err := s.Check(s.parent, Request{Launcher: "helper"}); code(err) != mail.SpawnDisabled || len(s.Available()) != 0 {
		t.Errorf("without launchers: %v", err)
	}
}

// Values replace arguments that are a placeholder as a whole, unchanged and without a shell.
// The prompt is in no argument and no environment of any process.
func TestValuesAreArgumentsAndThePromptIsNone(t *testing.T) {
	eachMode(t, func(t *testing.T, s *stage) {
		dir := s.dir + "/work/a b; $(touch pwned) {model}"
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l := s.helper(s.launcherMode())
		l.Args = []string{"as-agent", "--model", "{model}", "$(touch pwned) `id` $HOME", "{cwd}", "{name}", "x{model}", "{prompt}", ""}
		s.launchers(l)
		const canary = "canary-7c1f"
		id, err := s.begin(s.parent, Request{Prompt: "say " + canary + "\narguments\nenvironment\nshell ls\nwait 1s", Cwd: dir, Name: "n1", Result: true})
		if err != nil {
			t.Fatal(err)
		}
		doortest.Until(t, 20*time.Second, "the agent has ended", func() bool {
			if where := inProc(canary); where != "" {
				t.Fatalf("the prompt is in %s", where)
			}
			_, over := s.book.end(id)
			return over
		})
		got := s.over(id, 20*time.Second).Output
		for i, want := range []string{"as-agent", "--model", "small", "$(touch pwned) `id` $HOME", dir, "parent/n1", "x{model}", "{prompt}", ""} {
			if line := fmt.Sprintf("arg %d %q\n", i+1, want); !strings.Contains(got, line) {
				t.Errorf("no %q in %q", line, got)
			}
		}
		if strings.Contains(got, "\npwned\n") {
			t.Error("a shell read the arguments")
		}
	})
}

// inProc looks for a word in the arguments and environments of all processes.
func inProc(word string) string {
	for _, name := range []string{"cmdline", "environ"} {
		files, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, f := range files {
			if b, _ := os.ReadFile(f); strings.Contains(string(b), word) {
				return f
			}
		}
	}
	return ""
}

// Of the daemon's environment an agent gets only the variables that every program needs, and
// none of the daemon's tokens and directories.
func TestTheEnvironmentIsTheAgentsOwn(t *testing.T) {
	s := newStage(t, process.Contain)
	t.Setenv("DAEMONS_SECRET", "do not tell")
	t.Setenv("DOORWARD_TOKEN", "daemon-token-0123456789")
	t.Setenv("DOORWARD_STATE_DIR", s.dir+"/state")
	got := s.result("environment")
	var names []string
	for line := range strings.Lines(got) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "env "), "=")
		names = append(names, name)
	}
	slices.Sort(names)
	allowed := []string{"DECLARED", "DOORWARD_DAEMON_KEY", "DOORWARD_RUNTIME_DIR", "DOORWARD_TOKEN_FILE", "GORACE", "HOME", "LANG", "PATH", "TMPDIR", "USER"}
	for _, n := range names {
		if !slices.Contains(allowed, n) {
			t.Errorf("it has the variable %s", n)
		}
	}
	for _, n := range []string{"DECLARED", "DOORWARD_DAEMON_KEY", "DOORWARD_RUNTIME_DIR", "DOORWARD_TOKEN_FILE", "PATH"} {
		if !slices.Contains(names, n) {
			t.Errorf("it has no variable %s", n)
		}
	}
	if strings.Contains(got, "do not tell") || strings.Contains(got, "daemon-token") {
		t.Errorf("%q", got)
	}
}

// A directory that is replaced by a link to one outside the roots, between the check and the
// start, is refused.
func TestADirectorySwappedAfterTheCheckIsNotUsed(t *testing.T) {
	eachMode(t, func(t *testing.T, s *stage) {
		work, outside := s.dir+"/work/dir", s.dir+"/other"
		if err := os.Mkdir(work, 0o700); err != nil {
			t.Fatal(err)
		}
		r := Request{Launcher: "helper", Cwd: work, Prompt: "shell echo planted >here", Result: true}
		d, err := s.Check(s.parent, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(work), os.Symlink(outside, work)); err != nil {
			t.Fatal(err)
		}
		row := mail.Spawn{ID: "SWAPPED", Name: "p/c", Rights: d.Rights, MaxSeconds: 10}
		if err := s.Start(t.Context(), &row, s.parent, r); code(err) != mail.CwdOutsideRoots {
			t.Errorf("started: %v", err)
		}
		if e := s.over("SWAPPED", 10*time.Second); e.State != mail.Failed {
			t.Errorf("%+v", e)
		}
		if _, err := os.Stat(outside + "/here"); err == nil {
			t.Error("it ran outside")
		}
	})
}

// No agent runs outside the roots while a goroutine keeps replacing its directory by a link
// and back. Some of the hundred start, and they run inside.
func TestADirectorySwappedAllTheTimeGainsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	work, outside := s.dir+"/work/dir", s.dir+"/other"
	if err := errors.Join(os.Mkdir(work, 0o700), os.Symlink(outside, s.dir+"/link")); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = errors.Join(os.Rename(work, s.dir+"/real"), os.Rename(s.dir+"/link", work))
			time.Sleep(2 * time.Millisecond)
			_ = errors.Join(os.Rename(work, s.dir+"/link"), os.Rename(s.dir+"/real", work))
			time.Sleep(2 * time.Millisecond)
		}
	}()
	started, why := 0, map[string]int{}
	for range 100 {
		id, err := s.begin(s.parent, Request{Cwd: work, Prompt: "shell echo planted >here", Result: true})
		if err == nil {
			started++
		} else {
			why[code(err)]++
			time.Sleep(time.Millisecond)
		}
		if id != "" {
			s.over(id, 20*time.Second)
		}
	}
	close(stop)
	<-swapped
	if _, err := os.Stat(outside + "/here"); err == nil {
		t.Error("it ran outside")
	}
	if _, err := os.Stat(work + "/here"); err != nil || started == 0 {
		t.Errorf("%d of 100 started, %v: %v", started, why, err)
	}
	t.Logf("%d of 100 started, %v", started, why)
}

// A launcher whose program or template has changed starts nothing until the operator approves
// it, also when the program changes between the check and the start.
func TestAChangedProgramIsNotStarted(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	pins, err := pin.Open(pin.Options{Dir: s.dir + "/state/pins"})
	if err != nil {
		t.Fatal(err)
	}
	program := s.dir + "/work/agent.sh"
	write := func(text string) {
		t.Helper()
		fresh := program + ".new"
		if err := errors.Join(os.WriteFile(fresh, []byte("#!/bin/sh\n"+text+"\n"), 0o700), os.Rename(fresh, program)); err != nil {
			t.Fatal(err)
		}
	}
	configure := func(manual bool, args ...string) {
		l := s.helper(process.Contain)
		l.Path, l.Args = program, args
		l.Approved = pins.Guard("launcher:helper", manual, &pin.Process{Path: program, Args: args, Dir: l.Cwd}).Start
		s.launchers(l)
	}
	approve := func() {
		t.Helper()
		w := pins.Withheld("launcher:helper")
		if len(w) != 1 {
			t.Fatalf("withheld: %+v", w)
		}
		if err := pins.Approve("launcher:helper", []pin.Approval{{Item: w[0].Item, Digest: w[0].Digest}}); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		if id, err := s.begin(s.parent, Request{}); code(err) != mail.LauncherChanged {
			t.Errorf("%s: %s, %v", what, id, err)
		}
	}
	write("echo good")
	configure(false, "-p")
	if got := s.result(""); got != "good\n" {
		t.Errorf("at first use: %q", got)
	}
	write("echo evil")
	refused("a changed program")
	approve()
	if got := s.result(""); got != "evil\n" {
		t.Errorf("approved: %q", got)
	}
	configure(false, "-p", "--dangerously")
	refused("a changed template")
	approve()
	s.result("")
	// Between the check and the start.
	d, err := s.Check(s.parent, Request{Launcher: "helper"})
	if err != nil {
		t.Fatal(err)
	}
	write("echo swapped >" + s.dir + "/work/ran")
	if err := s.Start(t.Context(), &mail.Spawn{ID: "LATE", Name: "p/c", Rights: d.Rights, MaxSeconds: 10}, s.parent, Request{Launcher: "helper"}); code(err) != mail.LauncherChanged {
		t.Errorf("swapped after the check: %v", err)
	}
	s.over("LATE", 10*time.Second)
	if _, err := os.Stat(s.dir + "/work/ran"); err == nil {
		t.Error("the swapped program ran")
	}
}

// A launcher with manual approval starts nothing before it is approved.
func TestAnUnapprovedLauncherWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	pins, err := pin.Open(pin.Options{Dir: s.dir + "/state/pins"})
	if err != nil {
		t.Fatal(err)
	}
	l := s.helper(process.Contain)
	l.Approved = pins.Guard("launcher:helper", true, &pin.Process{Path: l.Path, Args: l.Args}).Start
	s.launchers(l)
	if _, err := s.begin(s.parent, Request{}); code(err) != mail.LauncherChanged {
		t.Errorf("%v", err)
	}
	if w := pins.Withheld("launcher:helper"); len(w) != 1 || w[0].Reason != pin.Unapproved {
		t.Errorf("%+v", w)
	}
}

// An agent can start others only in its own directory or below it, and not for longer than its
// own time.
func TestAnAgentsAgentHasNoMoreRoomOrTime(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	if err := errors.Join(os.MkdirAll(s.dir+"/work/a/b", 0o700), os.Mkdir(s.dir+"/work/c", 0o700)); err != nil {
		t.Fatal(err)
	}
	first, err := s.begin(s.parent, Request{Prompt: "wait 1000s", Cwd: s.dir + "/work/a", MaxSeconds: 30})
	if err != nil {
		t.Fatal(err)
	}
	who := scoped(principal.Spawn(first), "agent,server:notes").WithParent(s.parent)
	for _, c := range []struct {
		what string
		r    Request
		want string
	}{
		{"its own directory", Request{Launcher: "helper"}, ""},
		{"one below", Request{Launcher: "helper", Cwd: s.dir + "/work/a/b"}, ""},
		{"one beside", Request{Launcher: "helper", Cwd: s.dir + "/work/c"}, mail.CwdOutsideRoots},
		{"one above", Request{Launcher: "helper", Cwd: s.dir + "/work"}, mail.CwdOutsideRoots},
		{"more time than it has", Request{Launcher: "helper", MaxSeconds: 31}, mail.Budget},
	} {
		d, err := s.Check(who, c.r)
		if c.want == "" && err != nil || c.want != "" && code(err) != c.want {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
		if err == nil && d.MaxSeconds > 30 {
			t.Errorf("%s: %d seconds", c.what, d.MaxSeconds)
		}
	}
}
