package child

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is its own cast: started with one of these words it is a supervisor, a server, a server's offspring or a
// daemon. markVar marks every process of one test, however far it has run.
const markVar = "DOORWARD_TEST_MARK"

// noNap: a binary built with -race sleeps for a second before it exits.
const noNap = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		roles := map[string]func(args []string) int{
			"child-supervisor": Supervise,
			"as-echo":          asEcho,
			"as-stubborn":      asStubborn,
			"as-parent":        asParent,
			"as-middle":        asMiddle,
			"as-flood":         asFlood,
			"as-daemon":        asDaemon,
			"as-busy-daemon":   asBusyDaemon,
			"as-besieged":      asBesieged,
			"as-churn":         asChurn,
			"as-crowd":         asCrowd,
			"as-pest":          asPest,
		}
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(role(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// asEcho answers every line with itself and ends with standard input.
func asEcho([]string) int {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(in.Text())
	}
	return 0
}

// asStubborn ignores whatever can be ignored.
func asStubborn([]string) int {
	signal.Notify(make(chan os.Signal, 1))
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour)
	}
}

// asParent has n stubborn grandchildren in sessions of their own, whose parents are gone, and then does as args say.
func asParent(args []string) int {
	n, _ := strconv.Atoi(args[0])
	for range n {
		if err := exec.Command(self(), "as-middle").Run(); err != nil {
			log.Print(err)
			return 1
		}
	}
	fmt.Println("ready")
	switch args[1] {
	case "stay":
		return asStubborn(nil)
	case "echo":
		return asEcho(nil)
	}
	status, _ := strconv.Atoi(args[1])
	return status
}

func asMiddle([]string) int {
	c := exec.Command(self(), "as-stubborn")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		log.Print(err)
		return 1
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

// asFlood writes n MiB of lines to standard error, or with "line" one line, and then says so.
func asFlood(args []string) int {
	n, _ := strconv.Atoi(args[0])
	block := bytes.Repeat([]byte("x"), 1<<20)
	if args[1] == "lines" {
		block = bytes.Repeat([]byte(strings.Repeat("y", 63)+"\n"), 1<<14)
	}
	for range n {
		if _, err := os.Stderr.Write(block); err != nil {
			return 1
		}
	}
	fmt.Println("flooded")
	return asEcho(nil)
}

// asPest does to its supervisor what a signal can do, SIGKILL and SIGSTOP aside.
func asPest([]string) int {
	signal.Notify(make(chan os.Signal, 1))
	supervisor := os.Getppid()
	for sig := range syscall.Signal(65) {
		if sig == 0 || sig == unix.SIGKILL || sig == unix.SIGSTOP {
			continue
		}
		for range 20 {
			_ = unix.Kill(supervisor, sig)
		}
	}
	fmt.Println("done")
	return asEcho(nil)
}

// asDaemon stands in for the daemon: some servers with offspring, then it waits to be killed. With "hidden" it has made
// itself undumpable, as the daemon does.
func asDaemon(args []string) int {
	if len(args) > 0 {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			log.Print(err)
			return 1
		}
	}
	r, err := NewRunner(Options{})
	if err != nil {
		log.Print(err)
		return 1
	}
	for range 4 {
		p, err := r.Start(Spec{Server: "s", Path: self(), Args: []string{"as-parent", "3", "stay"}, Env: os.Environ()})
		if err != nil {
			log.Print(err)
			return 1
		}
		if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
			log.Print(err)
			return 1
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// asBusyDaemon starts and stops children without pause until it is killed.
func asBusyDaemon([]string) int {
	r, err := NewRunner(Options{Max: 8})
	if err != nil {
		log.Print(err)
		return 1
	}
	for range 8 {
		go func() {
			for {
				p, err := r.Start(Spec{Server: "s", Path: "/bin/sh", Args: []string{"-c", "setsid sleep 1000 & wait"}, Env: os.Environ()})
				if err == nil {
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					p.Kill()
					<-p.Done()
				}
			}
		}()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// asBesieged is a daemon whose server takes all the processes that its user may have.
func asBesieged([]string) int {
	limit := unix.Rlimit{Cur: 100, Max: 100}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		log.Print(err)
		return 1
	}
	r, err := NewRunner(Options{})
	if err != nil {
		log.Print(err)
		return 1
	}
	const bomb = `use POSIX; $| = 1; for (;;) { my $p = fork; unless (defined $p) { print "full\n"; sleep 1000 } POSIX::setsid unless $p }`
	p, err := r.Start(Spec{Server: "s", Path: "/usr/bin/perl", Args: []string{"-e", bomb}, Env: os.Environ(), Stderr: func(l string) { log.Print(l) }})
	if err != nil {
		log.Print(err)
		return 1
	}
	if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
		log.Print(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	p.Kill()
	<-p.Done()
	fmt.Println(p.Err())
	return 0
}

// asChurn starts and stops a great many children and says what is left of them.
func asChurn(args []string) int {
	n, _ := strconv.Atoi(args[0])
	r, err := NewRunner(Options{Stdin: time.Minute})
	if err != nil {
		log.Print(err)
		return 1
	}
	one := func() error {
		p, err := r.Start(Spec{Server: "s", Path: "/bin/cat", Env: []string{noNap}})
		if err != nil {
			return err
		}
		began := time.Now()
		p.Stop()
		<-p.Done()
		p.Stdout.Close()
		if p.Err() != nil {
			return fmt.Errorf("after %v: %w", time.Since(began), p.Err())
		}
		return nil
	}
	if err := one(); err != nil { // the poller and the pools are there from now on
		log.Print(err)
		return 1
	}
	goroutines, fds := runtime.NumGoroutine(), openFDs()
	for range n {
		if err := one(); err != nil {
			log.Print(err)
			return 1
		}
	}
	// The last waiter has closed Done and is about to return.
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("goroutines %d to %d, descriptors %d to %d, children %v\n",
		goroutines, runtime.NumGoroutine(), fds, openFDs(), children(os.Getpid()))
	if runtime.NumGoroutine() > goroutines || openFDs() > fds || len(children(os.Getpid())) > 0 {
		return 1
	}
	return 0
}

func openFDs() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// asCrowd holds many idle children at once and says what each costs: heap and stack bytes, threads, and the supervisor's
// own memory.
func asCrowd(args []string) int {
	n, _ := strconv.Atoi(args[0])
	r, err := NewRunner(Options{Max: n})
	if err != nil {
		log.Print(err)
		return 1
	}
	before := footprint()
	started := time.Now()
	var last *Process
	for range n {
		p, err := r.Start(Spec{Server: "s", Path: "/bin/cat", Env: []string{noNap}, Stderr: func(string) {}})
		if err != nil {
			log.Print(err)
			return 1
		}
		fmt.Fprintln(p.Stdin, "hello")
		if _, err := p.Stdout.Read(make([]byte, 6)); err != nil {
			log.Print(err)
			return 1
		}
		last = p
	}
	each := time.Since(started) / time.Duration(n)
	perChild := (footprint() - before) / int64(n)
	threads := len(must(os.ReadDir("/proc/self/task")))
	fmt.Printf("%d bytes a child, %d threads, %v a start\n", perChild, threads, each)
	fmt.Print(memoryOf(last.PID()))
	if err := r.Close(context.Background()); err != nil {
		log.Print(err)
		return 1
	}
	if perChild > 12<<10 || threads > 24 {
		return 1
	}
	return 0
}

func footprint() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func memoryOf(pid int) string {
	var out strings.Builder
	for _, file := range []string{"status", "smaps_rollup"} {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		for line := range strings.Lines(string(b)) {
			name, _, _ := strings.Cut(line, ":")
			if slices.Contains([]string{"RssAnon", "RssFile", "Threads", "Pss", "Private_Dirty"}, name) {
				out.WriteString("supervisor " + line)
			}
		}
	}
	return out.String()
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
		for end := time.Now().Add(2 * time.Second); len(s.alive()) > 0 && time.Now().Before(end); {
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
	return append(os.Environ(), append(more, noNap, markVar+"="+s.mark)...)
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

// asNobody makes c another user's where that can be done. Each stage gets a uid of its own, so that nobody else's processes
// count towards its limit, and its own copy of the binary, which go test keeps where only we can go.
func (s *stage) asNobody(c *exec.Cmd) {
	s.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	dir := must(os.MkdirTemp("", "doorward"))
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	copied := filepath.Join(dir, "child.test")
	// By cp, for a descriptor that is open for writing here might be inherited by somebody who is just being started.
	if err := errors.Join(os.Chmod(dir, 0o755), exec.Command("cp", self(), copied).Run()); err != nil {
		s.t.Fatal(err)
	}
	uid := 300000 + rand.Uint32N(1<<20)
	c.Path, c.Dir = copied, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func (s *stage) start(spec Spec) *Process {
	s.t.Helper()
	spec.Server = s.t.Name()
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
	select {
	case <-p.Done():
		return p.Err()
	case <-time.After(within):
		s.t.Fatalf("still there after %v", within)
		return nil
	}
}

// eventually polls until cond holds.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func (s *stage) none(within time.Duration) {
	s.t.Helper()
	eventually(s.t, within, "no process is left", func() bool { return len(s.alive()) == 0 })
}
