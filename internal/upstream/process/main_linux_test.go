package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/overload"
)

// The test binary has many roles: started with one of these words it is a supervisor, a server, a server's offspring or a
// daemon. markVar marks every process of one test, also those whose parents have ended.
const markVar = "DOORWARD_TEST_MARK"

// noNap keeps a binary built with -race from sleeping for a second before it exits.
const noNap = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		roles := map[string]func(args []string) int{
			"as-echo":          asEcho,
			"as-stubborn":      asStubborn,
			"as-parent":        asParent,
			"as-middle":        asMiddle,
			"as-flood":         asFlood,
			"as-daemon":        asDaemon,
			"as-busy-daemon":   asBusyDaemon,
			"as-besieged":      asBesieged,
			"as-miser":         asMiser,
			"as-misers-daemon": asMisersDaemon,
			"as-churn":         asChurn,
			"as-crowd":         asCrowd,
			"as-pest":          asPest,
			"as-warden":        asWarden,
			"as-prisoner":      asPrisoner,
			"as-glutton":       asGlutton,
			"as-cell":          asCell,
			"as-filtered":      asFiltered,

			"as-filtered-contained": asFilteredContained,
		}
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(role(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func self() string { return must(os.Executable()) }

// stage is one test's runner and mark.
type stage struct {
	*Runner
	t    *testing.T
	mark string
	mode string // of the sandbox, also of the servers that a stand-in for the daemon starts
	form string // sealed: supervisors run from an image, also those of a stand-in for the daemon
}

// modeVar tells a stand-in for the daemon the mode of the sandbox of its servers.
const modeVar = "DOORWARD_TEST_SANDBOX"

func modeOfRole() Sandbox { return Sandbox{Mode: os.Getenv(modeVar)} }

// formVar tells a stand-in for the daemon what its supervisors run from.
const (
	formVar    = "DOORWARD_TEST_SUPERVISOR"
	sealedForm = "sealed"
)

// imageOf is this binary, which is a supervisor too, as the image of supervisors.
func imageOf(form string) string {
	if form != sealedForm {
		return ""
	}
	return string(must(os.ReadFile("/proc/self/exe")))
}

func optionsOfRole() Options { return Options{Image: imageOf(os.Getenv(formVar))} }

// eachMode runs a test without a sandbox, and in one with supervisors of both kinds, because the promises about a
// server's end hold for all.
func eachMode(t *testing.T, o Options, test func(t *testing.T, s *stage)) {
	t.Parallel()
	for _, mode := range []string{Off, Contain} {
		for _, form := range []string{"own", sealedForm} {
			if mode == Off && form == sealedForm {
				continue // one supervisor of two: what holds for both below holds for it
			}
			t.Run(mode+" "+form, func(t *testing.T) {
				t.Parallel()
				o := o
				o.Image = imageOf(form)
				s := newStage(t, o)
				s.mode, s.form = mode, form
				test(t, s)
			})
		}
	}
}

func newStage(t *testing.T, o Options) *stage {
	t.Helper()
	r, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Runner: r, t: t, mark: fmt.Sprintf("%d-%s", os.Getpid(), t.Name())}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Close(ctx)
		// How quickly they end is measured where it is promised; here nothing may stay.
		for end := time.Now().Add(20 * time.Second); len(s.alive()) > 0 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		for _, pid := range s.alive() {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			_ = unix.Kill(pid, unix.SIGKILL)
			t.Errorf("process %d is left over: %s", pid, status)
		}
	})
	return s
}

func (s *stage) env(more ...string) []string {
	return append(os.Environ(), append(more, noNap, markVar+"="+s.mark, modeVar+"="+s.mode, formVar+"="+s.form)...)
}

// alive are the processes that carry the mark, zombies not among them.
func (s *stage) alive() []int { return marked(s.mark) }

func marked(mark string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(dir + "/environ")
		if slices.Contains(strings.Split(string(env), "\x00"), markVar+"="+mark) {
			pids = append(pids, must(strconv.Atoi(filepath.Base(dir))))
		}
	}
	return pids
}

// daemon starts the test binary as a stand-in for the daemon and waits until it says that it is ready. It ends with the test.
func (s *stage) daemon(how func(c *exec.Cmd), args ...string) (c *exec.Cmd, in io.WriteCloser, out *bufio.Reader) {
	s.t.Helper()
	c = exec.Command(self(), args...)
	c.Env, c.Stderr = s.env(), os.Stderr
	if how != nil {
		how(c)
	}
	in, err := c.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	out = bufio.NewReader(stdout)
	if line, err := out.ReadString('\n'); line != "ready\n" {
		s.t.Fatalf("the daemon said %q, %v", line, err)
	}
	return c, in, out
}

// asOtherUser makes c a process of another user where that can be done. Each stage gets a uid of its own, so that no
// other processes count towards its limit, and its own copy of the binary, which go test keeps where only its user can
// go.
func (s *stage) asOtherUser(c *exec.Cmd) {
	s.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	dir := must(os.MkdirTemp("", "doorward"))
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	copied := filepath.Join(dir, "child.test")
	// By cp, for a descriptor that is open for writing here might be inherited by a process that is just being started.
	if err := errors.Join(os.Chmod(dir, 0o755), exec.Command("cp", self(), copied).Run()); err != nil {
		s.t.Fatal(err)
	}
	uid := 300000 + rand.Uint32N(1<<20)
	c.Path, c.Dir = copied, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func (s *stage) start(spec Spec) *Process {
	s.t.Helper()
	spec.Server, spec.Sandbox.Mode = s.t.Name(), s.mode
	spec.Env = append(spec.Env, s.env()...)
	p, err := s.Start(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { p.Stdout.Close() })
	return p
}

// role starts the test binary as one of its roles.
func (s *stage) role(args ...string) *Process {
	s.t.Helper()
	return s.start(Spec{Path: self(), Args: args})
}

// shell starts a script.
func (s *stage) shell(script string) *Process {
	s.t.Helper()
	return s.start(Spec{Path: "/bin/sh", Args: []string{"-c", script}})
}

func (s *stage) line(p *Process) string {
	s.t.Helper()
	_ = p.Stdout.SetReadDeadline(time.Now().Add(20 * time.Second))
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := p.Stdout.Read(b); err != nil {
			s.t.Fatalf("reading a line after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
	}
}

func (s *stage) expect(p *Process, want string) {
	s.t.Helper()
	if got := s.line(p); got != want {
		s.t.Fatalf("read %q, want %q", got, want)
	}
}

func (s *stage) end(p *Process, within time.Duration) error {
	s.t.Helper()
	within += overload.Late()
	select {
	case <-p.Done():
		return p.Err()
	case <-time.After(within):
		s.t.Fatalf("still there after %v", within)
		return nil
	}
}

// eventually polls until cond holds. With 0 it must hold at once.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	if within > 0 {
		within += overload.Late()
	}
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func (s *stage) none(within time.Duration) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("left: %v", s.alive())
		}
	}()
	eventually(s.t, within, "no process is left", func() bool { return len(s.alive()) == 0 })
}
