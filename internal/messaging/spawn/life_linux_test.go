package spawn

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/process"
	"github.com/doorward/doorward/test/doortest"
)

func TestTheEndIsReportedWithStatusAndOutput(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	number := func(n int) *int { return &n }
	for prompt, want := range map[string]mail.SpawnEnd{
		"say done":                  {State: mail.Exited, ExitCode: number(0), Output: "done\n"},
		"say half\nexit 7":          {State: mail.Exited, ExitCode: number(7), Output: "half\n"},
		"shell kill -KILL $PPID":    {State: mail.Exited, ExitCode: number(128 + 9)},
		"say \x1b[31mred\x07\u202e": {State: mail.Exited, ExitCode: number(0), Output: "red\n"},
	} {
		got := s.over(s.start(prompt), 20*time.Second)
		if got.State != want.State || got.ExitCode == nil || *got.ExitCode != *want.ExitCode || got.Output != want.Output || got.Rest != nil {
			t.Errorf("%q: %+v, want %+v", prompt, got, want)
		}
	}
	id, err := s.begin(s.parent, Request{Prompt: "say unwanted"})
	if err != nil {
		t.Fatal(err)
	}
	if e := s.over(id, 20*time.Second); e.Output != "" {
		t.Errorf("an output that was not asked for: %q", e.Output)
	}
}

// A long output is kept in a file that only the user can read, up to the launcher's limit. The
// result is its last part. Old files are removed.
func TestALongOutputIsKeptInAFile(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	id := s.start("say first\nflood 2\nsay last")
	e := s.over(id, 20*time.Second)
	if len(e.Output) > resultBytes || !strings.HasSuffix(e.Output, "last\n") || strings.Contains(e.Output, "first") || len(e.Rest) != 1 {
		t.Fatalf("%d bytes that end in %q, refs %v", len(e.Output), e.Output[max(0, len(e.Output)-10):], e.Rest)
	}
	path := strings.TrimPrefix(e.Rest[0].URI, "file://")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fi, _ := os.Stat(path)
	if int64(len(b)) != 1<<20 || e.Rest[0].Size != 1<<20 || digest(string(b)) != e.Rest[0].SHA256 || !strings.HasPrefix(string(b), "first\n") || fi.Mode() != 0o600 {
		t.Errorf("%d bytes, mode %v, ref %+v", len(b), fi.Mode(), e.Rest[0])
	}
	old := time.Now().Add(-outputsKept - time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	sweepOutputs(s.dir+"/state", true)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("an old output stays: %v", err)
	}
}

func TestTimeEndsAnAgent(t *testing.T) {
	eachMode(t, func(t *testing.T, s *stage) {
		id, err := s.begin(s.parent, Request{Prompt: "say begun\nignore\ndaemonise\nwait 1000s", MaxSeconds: 5, Result: true})
		if err != nil {
			t.Fatal(err)
		}
		if e := s.over(id, 20*time.Second); e.State != mail.TimedOut || e.Output != "begun\n" {
			t.Errorf("%+v", e)
		}
	})
}

func TestAnAgentOverItsBudgetIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	id := s.start("ignore\nwait 1000s")
	s.OverBudget(id)
	if s.Find(id) != nil {
		t.Error("its token counts")
	}
	if e := s.over(id, 10*time.Second); e.State != mail.OverBudget {
		t.Errorf("%+v", e)
	}
	s.OverBudget(id)
}

// No process that an agent has started outlives the agent, also when it daemonises or ignores
// SIGTERM.
func TestNothingOutlivesItsAgent(t *testing.T) {
	eachMode(t, func(t *testing.T, s *stage) {
		mark := "DECLARED=" + s.dir
		l := s.helper(s.launcherMode())
		l.Env["DECLARED"] = s.dir
		s.launchers(l)
		for _, prompt := range []string{"daemonise\ndaemonise\nsay done", "ignore\ndaemonise\nwait 1000s"} {
			id := s.start(prompt)
			if strings.Contains(prompt, "wait") {
				doortest.Until(t, 10*time.Second, "it runs", func() bool { return len(marked(mark)) > 2 })
				if err := s.Stop(id, 100*time.Millisecond); err != nil {
					t.Fatal(err)
				}
			}
			s.over(id, 10*time.Second)
			if left := marked(mark); len(left) > 0 {
				t.Errorf("after %q processes are left: %v", prompt, left)
			}
		}
	})
}

// A fork bomb ends at the launcher's limit of processes, leaves none behind, and does not
// prevent another agent from running.
func TestAForkBombMeetsItsLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	l := s.helper(process.Contain)
	l.Sandbox.Limits.Processes = 60
	l.Env["DECLARED"] = s.dir
	s.launchers(l)
	id := s.start("shell while :; do sleep 1000 >/dev/null 2>&1 & done") // a bomb that doubles would fill the machine before it is counted
	bystander := s.result("say still here")
	e := s.over(id, 30*time.Second)
	if bystander != "still here\n" {
		t.Errorf("a bystander said %q", bystander)
	}
	// Without a cgroup the shell exits when it can make no further process.
	if e.State != mail.OverBudget && (e.State != mail.Exited || !strings.Contains(strings.ToLower(e.Output), "fork")) {
		t.Errorf("%+v", e)
	}
	if left := marked("DECLARED=" + s.dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func TestAParentThatIsGoneTakesItsAgentsAlong(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	going, err := s.begin(s.parent, Request{Prompt: "wait 1000s"})
	if err != nil {
		t.Fatal(err)
	}
	staying, err := s.begin(s.parent, Request{Prompt: "wait 1000s", KeepOnExit: true})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.begin(principal.New("token:other").WithLocal(), Request{Prompt: "wait 1000s"})
	if err != nil {
		t.Fatal(err)
	}
	s.ParentGone("s:" + s.parent.Name())
	if e := s.over(going, 10*time.Second); e.State != mail.Killed {
		t.Errorf("%+v", e)
	}
	if s.Find(staying) == nil || s.Find(other) == nil {
		t.Error("agents of another parent or with KeepOnExit have ended")
	}
}

func TestCloseEndsAllAndTellsTheBook(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	a, b := s.start("wait 1000s"), s.start("ignore\nwait 1000s")
	s.book.mu.Lock()
	s.book.fails = 2
	s.book.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.Close(ctx)
	for _, id := range []string{a, b} {
		if e, ok := s.book.end(id); !ok || e.State != mail.Killed {
			t.Errorf("%s: %+v", id, e)
		}
	}
	if _, err := s.begin(s.parent, Request{Prompt: "say late"}); err == nil {
		t.Error("something is started afterwards")
	}
	if files, _ := filepath.Glob(s.dir + "/run/*" + tokenEnd); len(files) > 0 {
		t.Errorf("tokens are left: %v", files)
	}
}

// asDaemon starts two agents that leave processes behind, and waits.
func asDaemon(args []string) int {
	dir := args[0]
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Print(err)
		return 1
	}
	r := must(process.NewRunner(process.Options{Hide: []string{dir + "/run", dir + "/state"}}))
	b := newBook()
	m := New(Options{Runner: r, Book: b, StateDir: dir + "/state", RuntimeDir: dir + "/run", Socket: dir + "/run/doorward.sock"})
	all := map[string]*Launcher{}
	for _, mode := range []string{process.Off, process.Contain} {
		all[mode] = &Launcher{Name: mode, Path: self(), Args: []string{"as-agent"}, Roots: []string{dir}, Cwd: dir, Seconds: 60,
			Env: map[string]string{"DECLARED": dir}, Sandbox: process.Sandbox{Mode: mode}}
	}
	m.SetLaunchers(all)
	for mode := range all {
		s := &mail.Spawn{ID: mode, Name: "a/b", MaxSeconds: 60}
		if err := m.Start(context.Background(), s, principal.New("uid:0"), Request{Launcher: mode, Prompt: "ignore\ndaemonise\ndaemonise\nwait 1000s"}); err != nil {
			log.Print(err)
			return 1
		}
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return 0
}

// Two seconds after a daemon was killed no process of its agents is left. The next Recover
// removes their tokens and ends them in the book.
func TestAKilledDaemonLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	c := exec.Command(self(), "as-daemon", s.dir)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	if got := line(t, bufio.NewReader(out)); got != "ready" {
		t.Fatal(got)
	}
	mark := "DECLARED=" + s.dir
	doortest.Until(t, 10*time.Second, "both agents and what they left run", func() bool { return len(marked(mark)) >= 6 })
	if files, _ := filepath.Glob(s.dir + "/run/*" + tokenEnd); len(files) != 2 {
		t.Fatalf("tokens: %v", files)
	}
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	doortest.Until(t, 2*time.Second, "nothing is left", func() bool { return len(marked(mark)) == 0 })

	s.book.mu.Lock()
	for _, id := range []string{process.Off, process.Contain} {
		s.book.open[id] = mail.Spawn{ID: id, Name: "a/b"}
	}
	s.book.mu.Unlock()
	keep := s.dir + "/run/other.token"
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{process.Off, process.Contain} {
		if e, ok := s.book.end(id); !ok || e.State != mail.Killed {
			t.Errorf("%s: %+v", id, e)
		}
	}
	if files, _ := filepath.Glob(s.dir + "/run/*" + tokenEnd); len(files) != 1 || files[0] != keep {
		t.Errorf("files: %v", files)
	}
}

// launcherMode is the sandbox mode of the stage's launcher.
func (s *stage) launcherMode() string {
	s.Manager.mu.Lock()
	defer s.Manager.mu.Unlock()
	return s.Manager.launchers["helper"].Sandbox.Mode
}
