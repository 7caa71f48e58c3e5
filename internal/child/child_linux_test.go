package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestServerTalksOverItsPipes(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-echo")
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(p.Stdin, word)
		s.expect(p, word)
	}
	if p.Err() != nil {
		t.Fatalf("Err before the end: %v", p.Err())
	}
	p.Stdin.Close()
	if err := s.end(p, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Stdout.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("after the end: %d bytes, %v", n, err)
	}
}

func TestWhatWasWrittenBeforeTheEndCanBeReadAfterIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.shell("echo last words")
	if err := s.end(p, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	s.expect(p, "last words")
}

func TestExitStatusIsTheServers(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -TERM $$": 128 + 15, "kill -SEGV $$": 128 + 11, "kill -KILL $$": 128 + 9,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			err := s.end(s.shell(script), 5*time.Second)
			var exit *ExitError
			if want == 0 && err != nil || want != 0 && (!errors.As(err, &exit) || *exit != ExitError{Code: want}) {
				t.Fatalf("got %v, want status %d", err, want)
			}
		})
	}
}

func TestServerThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/nonexistent/server": 127, "/etc": 126, text: 126} {
		s := newStage(t, Options{})
		lines := make(chan string, 10)
		p := s.start(Spec{Path: path, Stderr: func(l string) { lines <- l }})
		err := s.end(p, 5*time.Second)
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Code != want {
			t.Fatalf("%s: %v, want %d", path, err, want)
		}
		if l := <-lines; !strings.Contains(l, path) {
			t.Fatalf("the reason %q does not name %s", l, path)
		}
	}
	s := newStage(t, Options{})
	if _, err := s.Start(Spec{Server: "x", Path: "/bin/cat", Dir: "/nonexistent"}); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("missing directory: %v", err)
	}
	if s.Alive() != 0 {
		t.Fatalf("a failed start takes a place: %d", s.Alive())
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.expect(s.start(Spec{Path: "/bin/sh", Args: []string{"-c", "pwd"}, Dir: "/usr"}), "/usr")
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	args := []string{"--", "", "a b", "$HOME;ls", "-x", "ünï\x01"}
	p := s.start(Spec{Path: "/bin/sh", Args: append([]string{"-c", `printf '[%s]' "$@"; echo`, "sh"}, args...)})
	s.expect(p, "["+strings.Join(args, "][")+"]")
}

func TestOffspringEndsWithTheServer(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-parent", "3", "7")
	s.expect(p, "ready")
	err := s.end(p, 2*time.Second)
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 7 {
		t.Fatalf("status %v, want 7", err)
	}
	if left := s.alive(); len(left) > 0 {
		t.Fatalf("Done is closed and %v are alive", left)
	}
}

// A chain of processes, each the parent of the next, each in a session of its own.
func TestDeepTreeEndsWithTheServer(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	script := `n=$1; trap "" TERM HUP INT; if [ $n -gt 0 ]; then setsid sh -c "$0" "$0" $((n-1)) & wait; else echo ready; sleep 1000; fi`
	p := s.start(Spec{Path: "/bin/sh", Args: []string{"-c", script, script, "60"}})
	s.expect(p, "ready")
	p.Kill()
	s.end(p, 2*time.Second)
	s.none(0)
}

func TestForkingProcessesEndWithTheServer(t *testing.T) {
	t.Parallel()
	python := must(Resolve("python3", os.Getenv("PATH")))
	for name, script := range map[string]string{
		// 200 processes at once.
		"bomb": `
import os, sys, time
n = 0
while n < 200:
    n += 1
    if os.fork() == 0:
        os.setsid(); time.sleep(1000)
print("ready", flush=True); time.sleep(1000)`,
		// One process after another, each dead as soon as it has forked: there is never the same one to kill.
		"runner": `
import os, sys, time
print("ready", flush=True)
end = time.time() + 15
while time.time() < end:
    if os.fork(): os._exit(0)
    os.setsid()`,
		// Every death is answered with a new process.
		"hydra": `
import os, sys, time
head = True
for i in range(5):
    if os.fork() == 0: head = False; break
if head: os.write(1, b"ready\n")
end = time.time() + 15
while time.time() < end:
    pid = os.fork()
    if pid == 0: os.setsid(); time.sleep(1000)
    os.waitpid(pid, 0)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			// The runner's main process ends at once, so it is kept under a shell.
			p := s.start(Spec{Path: "/bin/sh", Args: []string{"-c", `"$@"; sleep 1000`, "sh", python, "-S", "-c", script}})
			s.expect(p, "ready")
			p.Kill()
			s.end(p, 2*time.Second)
			s.none(0)
		})
	}
}

func TestKilledDaemonLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	daemon, _, _ := s.daemon(nil, "as-daemon")
	if n := len(s.alive()); n != 1+4*(1+1+3) {
		t.Fatalf("%d processes before", n)
	}
	began := time.Now()
	_ = daemon.Process.Kill()
	s.none(2 * time.Second)
	t.Logf("gone after %v", time.Since(began))
}

// The daemon makes itself undumpable, and usually is not root: both take rights at /proc away.
func TestKilledUndumpableDaemonLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	daemon, _, _ := s.daemon(s.asNobody, "as-daemon", "hidden")
	if n := len(s.alive()); n < 4*(1+1+3) {
		t.Fatalf("%d processes before", n)
	}
	_ = daemon.Process.Kill()
	s.none(2 * time.Second)
}

// Whatever the moment is in which the daemon dies, between fork and exec for instance.
func TestDaemonKilledWhileItStartsChildrenLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	for range 15 {
		daemon, _, _ := s.daemon(nil, "as-busy-daemon")
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		_ = daemon.Process.Kill()
		s.none(2 * time.Second)
	}
}

// A server that uses up the processes of its user leaves none for a new thread of the supervisor either.
func TestSupervisorNeedsNothingWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become a user without other processes, whose limit can be reached")
	}
	for _, ending := range []string{"kill", "stop"} {
		t.Run(ending, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			daemon, in, out := s.daemon(s.asNobody, "as-besieged")
			if n := len(s.alive()); n < 20 {
				t.Fatalf("%d processes before", n)
			}
			if ending == "kill" {
				_ = daemon.Process.Kill()
			} else {
				in.Close()
				if line, _ := out.ReadString('\n'); line != "exit status 137 (signal 9)\n" {
					t.Errorf("the daemon said %q", line)
				}
			}
			s.none(2 * time.Second)
		})
	}
}

func TestStopOfAWillingServer(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Stdin: 10 * time.Second})
	p := s.role("as-echo")
	began := time.Now()
	p.Stop()
	p.Stop()
	if err := s.end(p, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Fatalf("end of input alone should do at once, took %v", took)
	}
	if _, err := p.Stdin.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("writing after Stop: %v", err)
	}
	p.Stop()
	p.Kill()
}

func TestStopSendsTermToTheProcessGroup(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Stdin: 50 * time.Millisecond, Term: time.Minute})
	// Both the shell and what it waits for must hear it: a signal to the shell alone would not end cat of a FIFO.
	p := s.shell(`trap "echo term; exit 4" TERM; echo ready; sleep 1000 & wait`)
	s.expect(p, "ready")
	p.Stop()
	s.expect(p, "term")
	if err := s.end(p, 5*time.Second); err == nil || err.(*ExitError).Code != 4 {
		t.Fatalf("status %v, want 4", err)
	}
}

func TestStopOfAServerThatIgnoresEverything(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-parent", "2", "stay")
	s.expect(p, "ready")
	began := time.Now()
	p.Stop()
	s.end(p, 7*time.Second)
	s.none(0)
	if took := time.Since(began); took < DefaultStdin+DefaultTerm {
		t.Fatalf("killed after %v already", took)
	}
	if code := p.Err().(*ExitError).Code; code != 128+9 {
		t.Fatalf("status %d", code)
	}
}

func TestCloseEndsAllInParallel(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	var all []*Process
	for range 8 {
		p := s.role("as-parent", "1", "stay")
		all = append(all, p)
	}
	for _, p := range all {
		s.expect(p, "ready")
	}
	began := time.Now()
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 7*time.Second {
		t.Fatalf("took %v", took)
	}
	s.none(0)
	if _, err := s.Start(Spec{Path: "/bin/cat"}); !errors.Is(err, ErrClosed) {
		t.Fatalf("start after close: %v", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatalf("second close: %v", err)
	}
}

func TestCloseKillsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-parent", "1", "stay")
	s.expect(p, "ready")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Fatalf("took %v", took)
	}
	s.none(0)
}

func TestStartsAndStopsAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Max: 16})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				p, err := s.Start(Spec{Server: "s", Path: "/bin/cat", Env: s.env()})
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				go p.Stop()
				go p.Kill()
				<-p.Done()
				p.Stdout.Close()
			}
		})
	}
	wg.Wait()
	if s.Alive() != 0 {
		t.Fatalf("%d alive", s.Alive())
	}
}

func TestCap(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Max: 2})
	a, b := s.role("as-echo"), s.role("as-echo")
	if _, err := s.Start(Spec{Server: "c", Path: "/bin/cat"}); !errors.Is(err, ErrTooMany) {
		t.Fatalf("third start: %v", err)
	}
	a.Stop()
	s.end(a, 5*time.Second)
	c := s.role("as-echo")
	fmt.Fprintln(c.Stdin, "x")
	s.expect(c, "x")
	fmt.Fprintln(b.Stdin, "y")
	s.expect(b, "y")
}

func TestServerThatClosesStdoutButLives(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.shell(`exec >&-; read line; exit 5`)
	_ = p.Stdout.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := p.Stdout.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("want the end of file while it lives, got %v", err)
	}
	select {
	case <-p.Done():
		t.Fatal("it should be alive")
	default:
	}
	fmt.Fprintln(p.Stdin, "go on")
	if err := s.end(p, 5*time.Second); err == nil || err.(*ExitError).Code != 5 {
		t.Fatalf("status %v, want 5", err)
	}
}

func TestServerThatClosesStdinBreaksThePipe(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.shell(`exec <&-; echo ready; sleep 1000`)
	s.expect(p, "ready")
	// The supervisor lets go of its own copy a moment after the server's start.
	eventually(t, 5*time.Second, "writing fails with EPIPE", func() bool {
		_, err := p.Stdin.Write([]byte("x"))
		return errors.Is(err, unix.EPIPE)
	})
}

// The daemon may have been started with descriptors open that were meant for nobody.
func TestServerHasThreeDescriptors(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	// The stray one is not close-on-exec, as an inherited one is not; high, to be beyond what anybody counts with.
	const stray = 200
	if err := unix.Dup2(int(w.Fd()), stray); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stray)

	s := newStage(t, Options{})
	p := s.shell(`echo ready; read line`)
	s.expect(p, "ready")
	server := children(p.PID())
	if len(server) != 1 {
		t.Fatalf("children of the supervisor: %v", server)
	}
	var fds []string
	for _, e := range must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", server[0]))) {
		fds = append(fds, e.Name())
	}
	if !slices.Equal(fds, []string{"0", "1", "2"}) {
		t.Fatalf("descriptors of the server: %v", fds)
	}
	eventually(t, 5*time.Second, "the supervisor has let go of the pipes", func() bool {
		for fd := range 3 {
			if must(os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.PID(), fd))) != os.DevNull {
				return false
			}
		}
		return true
	})
}

func TestServerLeadsItsOwnSession(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-echo")
	fmt.Fprintln(p.Stdin, "x")
	s.expect(p, "x")
	server := children(p.PID())[0]
	for _, pid := range []int{p.PID(), server} {
		if sid, err := unix.Getsid(pid); err != nil || sid != pid {
			t.Errorf("session of %d is %d, %v", pid, sid, err)
		}
	}
}

func TestSupervisorSurvivesEverySignalOfItsServer(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-pest")
	s.expect(p, "done")
	fmt.Fprintln(p.Stdin, "alive")
	s.expect(p, "alive")
	p.Stdin.Close()
	if err := s.end(p, 5*time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestStoppedSupervisorIsBypassed(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Stdin: 50 * time.Millisecond, Term: 50 * time.Millisecond})
	p := s.role("as-parent", "2", "stay")
	s.expect(p, "ready")
	// Stopped for good: what SIGCONT wakes is stopped again.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.mu.Lock()
				p.signal(unix.SIGSTOP)
				p.mu.Unlock()
			}
		}
	})
	began := time.Now()
	p.Stop()
	s.end(p, 7*time.Second-DefaultStdin-DefaultTerm)
	close(stop)
	wg.Wait()
	s.none(0)
	t.Logf("gone after %v: %v", time.Since(began), p.Err())
}

func TestSupervisorThatItsServerStoppedIsWokenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{LastWatch: time.Minute})
	p := s.shell(`trap "" TERM; kill -STOP $PPID; echo ready; sleep 1000`)
	s.expect(p, "ready")
	p.Kill()
	if err := s.end(p, 5*time.Second); err == nil || err.(*ExitError).Supervisor {
		t.Fatalf("got %v", err)
	}
}

// The admitted limit: without its supervisor only the main process is certain to end.
func TestKilledSupervisorTakesTheServerWithIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-stubborn")
	s.expect(p, "ready")
	_ = unix.Kill(p.PID(), unix.SIGKILL)
	err := s.end(p, 2*time.Second)
	var exit *ExitError
	if !errors.As(err, &exit) || !exit.Supervisor {
		t.Fatalf("got %v", err)
	}
	s.none(2 * time.Second)
}

func TestHundredsOfChildrenLeaveNothing(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), self(), "as-churn", "300")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

func TestIdleChildrenCostLittle(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), self(), "as-crowd", "100")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

func TestSuperviseRefusesWrongCalls(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--"}, {"cat"}, {"--strict", "--", "/bin/cat"}, {"--", "/bin/cat"}} {
		c := exec.Command(self(), append([]string{"child-supervisor"}, args...)...)
		out, err := c.CombinedOutput()
		if c.ProcessState.ExitCode() != exitSupervisor || !strings.HasPrefix(string(out), "doorward: ") {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

func TestScanFindsTheSameChildren(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.shell(`sleep 1000 & sleep 1000 & echo ready; wait`)
	s.expect(p, "ready")
	shell := children(p.PID())[0]
	fast, slow := children(shell), scanChildren(shell)
	slices.Sort(fast)
	slices.Sort(slow)
	if len(fast) != 2 || !slices.Equal(fast, slow) {
		t.Fatalf("children %v, scan %v", fast, slow)
	}
}
