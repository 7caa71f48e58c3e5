package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSupervisorNeedsNoFurtherThread(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become a user whose count of processes is its own")
	}
	s := newStage(t, Options{})
	_, in, _ := s.daemon(s.asOtherUser, "as-misers-daemon", "30")
	in.Close()
	s.none(5 * time.Second)
}

// A supervisor ends a server that has used up the processes of its user, which leaves none for a thread
// of the supervisor either.
func TestSupervisorEndsAServerThatTookAllProcesses(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become a user without other processes, whose limit can be reached")
	}
	for _, ending := range []string{"kill", "stop"} {
		t.Run(ending, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			daemon, in, out := s.daemon(s.asOtherUser, "as-besieged")
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
			// Up to a hundred processes and other tests want the processor too.
			s.none(killPatience)
		})
	}
}

// A server has three descriptors, also if the daemon was started with others open.
func TestServerHasThreeDescriptors(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	// The stray one is not close-on-exec, as an inherited one is not, and high, so that no code counts on it.
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

// The main process ends with a killed supervisor. Only that is certain: an admitted limit.
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
