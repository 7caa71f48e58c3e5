package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// When either stage is killed, nothing of the server is left, also not what has a session of its own and ignores every
// signal.
func TestKilledStagesLeaveNothing(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"supervisor", "first process"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			s.mode = Contain
			p := s.role("as-parent", "3", "stay")
			s.expect(p, "ready")
			victim := p.PID()
			if stage == "first process" {
				victim = children(victim)[0]
			}
			_ = unix.Kill(victim, unix.SIGKILL)
			err := s.end(p, 2*time.Second)
			var exit *ExitError
			if !errors.As(err, &exit) || exit.Code != 128+9 || exit.Supervisor != (stage == "supervisor") {
				t.Errorf("got %v", err)
			}
			s.none(2 * time.Second)
		})
	}
}

// A contained server cannot stop its stages: it is ended although it has tried.
func TestServerCannotStopItsStages(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Stdin: 50 * time.Millisecond, Term: 50 * time.Millisecond})
	s.mode = Contain
	p := s.shell(`kill -STOP 1; kill -STOP $PPID; trap "" TERM; setsid sleep 1000 & echo ready; sleep 1000`)
	s.expect(p, "ready")
	p.Stop()
	s.end(p, 2*time.Second)
	s.none(2 * time.Second)
}

// The exit status of a contained server passes its stages unchanged. A program that cannot be run has the status 127 or
// 126, and a reason.
func TestExitStatusPassesTheStages(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.mode = Contain
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 128 + 15, "kill -SEGV $$": 128 + 11} {
		err := s.end(s.shell(script), 5*time.Second)
		var exit *ExitError
		if want == 0 && err != nil || want != 0 && (!errors.As(err, &exit) || *exit != ExitError{Code: want}) {
			t.Errorf("%s: %v, want %d", script, err, want)
		}
	}
	for path, want := range map[string]int{"/nonexistent/server": 127, "/etc": 126} {
		lines := make(chan string, 10)
		err := s.end(s.start(Spec{Path: path, Stderr: func(l string) { lines <- l }}), 5*time.Second)
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Code != want || !strings.Contains(<-lines, path) {
			t.Errorf("%s: %v, want %d", path, err, want)
		}
	}
}

// No path and no value of the configuration is in an argument of a stage, where every process of the machine can read it.
func TestArgumentsOfStagesTellNoConfiguration(t *testing.T) {
	t.Parallel()
	const canary = "/canary-in-the-plan"
	for _, mode := range []string{Off, Contain} {
		for _, value := range []string{canary, "file://" + canary, "/usr/bin:" + canary + ":/bin", "at=" + canary, canary + "+/aB3==", `{"path":"` + canary + `"}`, "--key=" + canary} {
			s := newStage(t, Options{Hide: []string{canary}, Homes: []string{canary}, Private: os.TempDir()})
			box := Sandbox{Mode: mode}
			if mode != Off {
				box = Sandbox{Mode: mode, Read: []string{canary}, Write: []string{canary}, Named: []string{canary}, Listed: []string{canary}, Own: []string{canary}, Hide: []string{canary}}
			}
			p, err := s.Start(Spec{Server: "s", Path: "/bin/sh", Args: []string{"-c", "echo ready; read line"}, Env: s.env("SECRET=" + value), Sandbox: box})
			if err != nil {
				t.Fatal(err)
			}
			s.expect(p, "ready")
			for _, pid := range s.alive() {
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(b), canary) {
					t.Errorf("%s, %s: process %d: %q", mode, value, pid, b)
				}
			}
			seen := 3
			if os.Getuid() != 0 || mode == Off {
				seen = 2 // one stage; or the environment of the second is shut to its own user
			}
			if n := len(s.alive()); n < seen {
				t.Errorf("%s: %d processes carry the environment, want %d", mode, n, seen)
			}
			p.Stdout.Close()
			p.Stdin.Close()
		}
	}
}

// A contained server has three descriptors: it gets none of the stages.
func TestContainedServerHasThreeDescriptors(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.mode = Contain
	p := s.shell(`echo ready; read line`)
	s.expect(p, "ready")
	server := children(children(p.PID())[0])[0]
	var fds []string
	for _, e := range must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", server))) {
		fds = append(fds, e.Name())
	}
	if !slices.Equal(fds, []string{"0", "1", "2"}) {
		t.Fatalf("descriptors of the server: %v", fds)
	}
}

// A server is not started where namespaces cannot be made, and the reason says what stands in the way.
func TestWithoutNamespacesNothingIsStarted(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{Contain, Strict} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			said := s.cell("user", "none", mode)
			if !strings.HasPrefix(said["not started"], "starting server s: sandbox: "+mode+" is not available on this system: making namespaces: ") ||
				!strings.Contains(said["not started"], "user.max_user_namespaces is 0") {
				t.Errorf("%v", said)
			}
			if !strings.HasPrefix(said["check"], "sandbox: "+mode+" is not available on this system") {
				t.Errorf("%v", said)
			}
			s.none(2 * time.Second)
		})
	}
}

// Contain starts a server of root without a user namespace, and says so. Strict does not start it.
func TestRootCanDoWithoutAUserNamespace(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	said := s.cell("root", "none", Contain)
	if said["not started"] != "" || !strings.HasPrefix(said["measure user namespace"], Unavailable) || said["stat /proc/1/fd/4"] != "EACCES" || said["read /proc/1/environ"] != "EACCES" || said["ptrace 1"] != "EPERM" ||
		said["status CapEff"] != "0000000000000000" || said["status CapBnd"] != "0000000000000000" {
		t.Errorf("%v", said)
	}
	said = s.cell("root", "none", Strict)
	if !strings.Contains(said["not started"], "user namespace unavailable") {
		t.Errorf("%v", said)
	}
}

// The kernel refuses a fresh /proc if parts of the present one are covered, as in a container. Contain then reports its own
// /proc as partial, and the other measures hold. Strict does not start the server.
func TestMaskedProcIsPartial(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	said := s.cell("user", "masked", Contain)
	if !strings.HasPrefix(said["measure own /proc"], Partial) || said["ended"] != "exit status 0" || said["ptrace 1"] != "EPERM" ||
		said["status CapEff"] != "0000000000000000" {
		t.Errorf("%v", said)
	}
	for name, result := range said {
		if strings.HasPrefix(name, "read /proc/") && result != "EACCES" || strings.HasPrefix(name, "stat /proc/") && result != "EACCES" {
			t.Errorf("%s: %s", name, result)
		}
	}
	said = s.cell("user", "masked", Strict)
	if !strings.Contains(said["not started"], "own /proc partial") {
		t.Errorf("%v", said)
	}
	// The limits hold there too: the tree is walked instead.
	said = s.cell("user", "masked", Contain, "as-glutton", "heap", "600")
	if !strings.HasPrefix(said["ended"], "ended for exceeding its memory limit: ") {
		t.Errorf("%v", said)
	}
}

// cell runs a server of a daemon that has a user namespace of its own, as the user who in it, and lacks something
// there.
func (s *stage) cell(who, without, mode string, argv ...string) map[string]string {
	s.t.Helper()
	_, _, out := s.daemon(func(c *exec.Cmd) {
		id := map[string]int{"root": 0, "user": 1000}[who]
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getgid(), Size: 1}},
			AmbientCaps: setupCaps}
	}, append([]string{"as-cell", without, mode}, argv...)...)
	said := map[string]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		name, result, _ := strings.Cut(lines.Text(), ": ")
		said[name] = result
	}
	return said
}

// asCell takes something from its namespaces, gives up its ambient capabilities if it is not root, and then is a daemon
// with one server.
func asCell(args []string) int {
	without, box := args[0], Sandbox{Mode: args[1], Limits: Limits{Memory: 96 << 20}}
	if err := map[string]func() error{
		"none":   func() error { return writeProc("/proc/sys/user/max_user_namespaces", "0") },
		"masked": func() error { return unix.Mount("tmpfs", "/proc/irq", "tmpfs", 0, "") },
	}[without](); err != nil {
		log.Print(err)
		return 1
	}
	if os.Getuid() != 0 {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			log.Print(err)
			return 1
		}
	}
	fmt.Println("ready")
	r, err := NewRunner(Options{})
	if err != nil {
		log.Print(err)
		return 1
	}
	_, err = r.Check(box)
	fmt.Println("check:", err)
	argv := args[2:]
	if len(argv) == 0 {
		argv = []string{"as-prisoner", "ptrace 1", "status CapEff", "status CapBnd", "stat /proc/1/fd/4", "read /proc/1/environ",
			fmt.Sprintf("read /proc/%d/environ", os.Getpid()), fmt.Sprintf("stat /proc/%d/root/etc", os.Getpid())}
	}
	p, err := r.Start(Spec{Server: "s", Path: self(), Args: argv, Env: os.Environ(), Sandbox: box, Stderr: func(l string) { log.Print(l) }})
	if err != nil {
		fmt.Println("not started:", err)
		return 0
	}
	_, measures := p.Sandbox()
	for _, m := range measures {
		fmt.Printf("measure %s: %s %s\n", m.Name, m.State, m.Detail)
	}
	_, _ = io.Copy(os.Stdout, p.Stdout)
	<-p.Done()
	fmt.Println("ended:", statusText(p.Err()))
	return 0
}
