package process

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestOffspringEndsWithTheServer(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
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
	})
}

// A chain of processes, each the parent of the next and each in a session of its own, ends
// with the server.
func TestDeepTreeEndsWithTheServer(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
		script := `n=$1; trap "" TERM HUP INT; if [ $n -gt 0 ]; then setsid sh -c "$0" "$0" $((n-1)) & wait; else echo ready; sleep 1000; fi`
		p := s.start(Spec{Path: "/bin/sh", Args: []string{"-c", script, script, "60"}})
		s.expect(p, "ready")
		p.Kill()
		s.end(p, 2*time.Second)
		s.none(0)
	})
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
			eachMode(t, Options{}, func(t *testing.T, s *stage) {
				// The runner's main process ends at once, so it is kept under a shell.
				p := s.start(Spec{Path: "/bin/sh", Args: []string{"-c", `"$@"; sleep 1000`, "sh", python, "-S", "-c", script}})
				s.expect(p, "ready")
				p.Kill()
				s.end(p, 2*time.Second)
				s.none(0)
			})
		})
	}
}

func TestKilledDaemonLeavesNothing(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
		daemon, _, _ := s.daemon(nil, "as-daemon")
		stages := 1
		if s.mode == Contain && os.Getuid() == 0 { // others cannot look into the second one
			stages = 2
		}
		if n := len(s.alive()); n != 1+4*(stages+1+3) {
			t.Fatalf("%d processes before", n)
		}
		began := time.Now()
		_ = daemon.Process.Kill()
		s.none(2 * time.Second)
		t.Logf("gone after %v", time.Since(began))
	})
}

// A killed daemon that is undumpable and not root leaves nothing, although both take rights at
// /proc away.
func TestKilledUndumpableDaemonLeavesNothing(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
		daemon, _, _ := s.daemon(s.asOtherUser, "as-daemon", "hidden")
		if n := len(s.alive()); n < 4*(1+1+3) {
			t.Fatalf("%d processes before", n)
		}
		_ = daemon.Process.Kill()
		s.none(2 * time.Second)
	})
}

// A daemon that is killed at a random moment while it starts children, for instance between
// fork and exec, leaves nothing.
func TestDaemonKilledWhileItStartsChildrenLeavesNothing(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
		for range 15 {
			daemon, _, _ := s.daemon(nil, "as-busy-daemon")
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			_ = daemon.Process.Kill()
			s.none(2 * time.Second)
		}
	})
}

func TestStopOfAWillingServer(t *testing.T) {
	eachMode(t, Options{Stdin: time.Minute}, func(t *testing.T, s *stage) {
		p := s.role("as-echo")
		began := time.Now()
		p.Stop()
		p.Stop()
		if err := s.end(p, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took >= time.Minute {
			t.Fatalf("end of input alone should do at once, took %v", took)
		}
		if _, err := p.Stdin.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
			t.Fatalf("writing after Stop: %v", err)
		}
		p.Stop()
		p.Kill()
	})
}

func TestStopSendsTermToTheProcessGroup(t *testing.T) {
	eachMode(t, Options{Stdin: 50 * time.Millisecond, Term: time.Minute}, func(t *testing.T, s *stage) {
		// The shell says that the signal has come, and ends the wait for its child.
		p := s.shell(`trap "echo term; exit 4" TERM; echo ready; sleep 1000 & wait`)
		s.expect(p, "ready")
		p.Stop()
		s.expect(p, "term")
		if err := s.end(p, 5*time.Second); err == nil || err.(*ExitError).Code != 4 {
			t.Fatalf("status %v, want 4", err)
		}
	})
}

func TestStopOfAServerThatIgnoresEverything(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
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
	})
}

func TestCloseEndsAllInParallel(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
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
		if took := time.Since(began); took > 4*(DefaultStdin+DefaultTerm) {
			t.Fatalf("took %v", took)
		}
		s.none(0)
		if _, err := s.Start(Spec{Path: "/bin/cat"}); !errors.Is(err, ErrClosed) {
			t.Fatalf("start after close: %v", err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatalf("second close: %v", err)
		}
	})
}

func TestCloseKillsWhenItsContextEnds(t *testing.T) {
	eachMode(t, Options{Stdin: time.Minute}, func(t *testing.T, s *stage) {
		p := s.role("as-parent", "1", "stay")
		s.expect(p, "ready")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took >= time.Minute {
			t.Fatalf("took %v", took)
		}
		s.none(0)
	})
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

func TestHundredsOfChildrenLeaveNothing(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) { s.census("as-churn", "300") })
}

func TestIdleChildrenCostLittle(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) { s.census("as-crowd", "100") })
}

// census runs a stand-in for the daemon that counts what its children leave or cost.
func (s *stage) census(args ...string) {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), self(), args...)
	c.Env = s.env()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	s.t.Logf("%s", out)
	if err != nil {
		s.t.Fatal(err)
	}
}
