// Package doortest starts the real doorward binary for tests and ends it again.
//
// Some promises of Doorward (the view of a client on a socket, the state after a kill) can be
// tested only with the shipped binary. Invariant: every daemon has its own home, state, runtime
// directory and ports, so tests run concurrently and leave neither files nor processes behind.
//
// Only tests import this package; it is never linked into the binary.
package doortest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/overload"
)

// Options of Start. The zero value suits most tests.
type Options struct {
	Bin     string        // the binary; default $DOORWARD_BIN, then bin/doorward of the module
	Args    []string      // appended to `doorward serve --config FILE`
	Env     []string      // further NAME=value for the daemon and for Command
	Token   string        // sets DOORWARD_TOKEN for the daemon only
	Dir     string        // home of an earlier daemon, to start again on its state
	Ready   time.Duration // how long to wait for `ready`; default 60 s
	NoReady bool          // return at once: the test expects the start to fail
}

// Daemon is one running `doorward serve`.
type Daemon struct {
	URL     string   // of the first HTTP listener, without a final slash: http://127.0.0.1:41234
	URLs    []string // of every HTTP listener, in the order in which they were printed
	Socket  string   // path of the Unix socket, empty if there is none
	Config  string   // path of its doorward.yaml
	Dir     string   // its home, which holds the other directories
	State   string   // its state directory
	Runtime string   // its runtime directory, short enough for a socket path
	Bin     string   // path of the binary

	t    testing.TB
	cmd  *exec.Cmd
	env  []string
	log  *lines
	done chan struct{}
}

// Start runs `doorward serve` with the configuration yaml and waits for `ready`. If yaml has no
// `listen:`, one loopback listener on a free port is added. The daemon is stopped when the test
// ends; its stderr is shown if the test failed.
func Start(t testing.TB, yaml string, o Options) *Daemon {
	t.Helper()
	d := &Daemon{t: t, Bin: binary(t, o.Bin), Dir: o.Dir, log: newLines(), done: make(chan struct{})}
	if d.Dir == "" {
		d.Dir = shortDir(t)
	}
	d.State = filepath.Join(d.Dir, "state")
	d.Runtime = filepath.Join(d.Dir, "run")
	d.Config = filepath.Join(d.Dir, "doorward.yaml")
	must(t, os.WriteFile(d.Config, []byte(withListener(yaml)), 0o600))
	d.env = environment(d, o.Env)
	d.run(o)
	t.Cleanup(d.cleanup)
	if !o.NoReady {
		d.waitReady(o.Ready)
	}
	return d
}

func (d *Daemon) run(o Options) {
	d.t.Helper()
	d.cmd = exec.Command(d.Bin, append([]string{"serve", "--config", d.Config}, o.Args...)...)
	d.cmd.Dir = d.Dir
	d.cmd.Env = d.env
	if o.Token != "" {
		d.cmd.Env = append(d.env[:len(d.env):len(d.env)], "DOORWARD_TOKEN="+o.Token)
	}
	d.cmd.Stderr = d.log
	// A child that outlives the daemon and holds its stderr must not hang the test.
	d.cmd.WaitDelay = 5 * time.Second
	must(d.t, d.cmd.Start())
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait()
	}()
}

// waitReady waits for `ready` and reads the listeners that `serve` prints before.
func (d *Daemon) waitReady(limit time.Duration) {
	d.t.Helper()
	if limit == 0 {
		limit = time.Minute
	}
	ready := d.log.wait(func(line string) bool { return line == "ready" }, limit, d.done)
	if !ready {
		d.t.Fatalf("doorward did not get ready within %s:\n%s", limit, strings.Join(d.Stderr(), "\n"))
	}
	for _, line := range d.Stderr() {
		addr, ok := strings.CutPrefix(line, "listening ")
		if !ok {
			continue
		}
		if path, ok := strings.CutPrefix(addr, "unix:"); ok {
			d.Socket = path
			continue
		}
		d.URLs = append(d.URLs, strings.TrimSuffix(addr, "/"))
	}
	if len(d.URLs) > 0 {
		d.URL = d.URLs[0]
	}
}

// MCP returns the address of one server's endpoint, or of the aggregate for "".
func (d *Daemon) MCP(server string) string {
	if server == "" {
		return d.URL + "/mcp"
	}
	return d.URL + "/mcp/" + server
}

// Stderr returns the lines that the daemon wrote so far.
func (d *Daemon) Stderr() []string { return d.log.all() }

// WaitStderr waits until a line contains part, and fails the test if none does within limit,
// which is longer on a machine under load.
func (d *Daemon) WaitStderr(part string, limit time.Duration) {
	d.t.Helper()
	found := func(line string) bool { return strings.Contains(line, part) }
	if !d.log.wait(found, limit+overload.Late(), d.done) {
		d.t.Fatalf("no %q on stderr within %s", part, limit)
	}
}

// PID returns the daemon's process id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Env returns the environment in which another doorward command, or a client that starts one,
// finds this daemon.
func (d *Daemon) Env() []string { return append([]string(nil), d.env...) }

// Command returns another doorward command, such as `connect`, that finds this daemon.
func (d *Daemon) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(d.Bin, args...)
	cmd.Dir = d.Dir
	cmd.Env = d.Env()
	return cmd
}

// Wait waits for the process to end and returns its exit status, -1 for a signal. The test fails
// if it still runs after limit, which is longer on a machine under load.
func (d *Daemon) Wait(limit time.Duration) int {
	d.t.Helper()
	select {
	case <-d.done:
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(limit + overload.Late()):
		d.t.Fatalf("doorward still runs after %s", limit)
		return -1
	}
}

// Stop interrupts the daemon, as Ctrl-C does, and returns its exit status. It may be called more
// than once.
func (d *Daemon) Stop() int {
	d.t.Helper()
	_ = d.cmd.Process.Signal(os.Interrupt)
	return d.Wait(15 * time.Second)
}

// Kill9 ends the daemon with SIGKILL, so that it cannot clean up.
func (d *Daemon) Kill9() {
	d.t.Helper()
	_ = d.cmd.Process.Kill()
	d.Wait(10 * time.Second)
}

// cleanup ends a daemon that the test left running, and fails the test if it does not end
// normally or has reported a panic or a data race.
func (d *Daemon) cleanup() {
	select {
	case <-d.done:
	default:
		d.end()
	}
	for _, line := range d.Stderr() {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "WARNING: DATA RACE") {
			d.t.Errorf("doorward wrote %q", line)
		}
	}
	if d.t.Failed() {
		d.t.Logf("end of doorward's stderr:\n%s", strings.Join(tail(d.Stderr(), 100), "\n"))
	}
}

func tail(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

func (d *Daemon) end() {
	_ = d.cmd.Process.Signal(os.Interrupt)
	select {
	case <-d.done:
	case <-time.After(15*time.Second + overload.Late()):
		_ = d.cmd.Process.Kill()
		<-d.done
		d.t.Errorf("doorward did not stop within 15 s")
		return
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.t.Errorf("doorward ended with exit status %d", code)
	}
}

// withListener adds a listener on a free loopback port to a configuration without one, because
// the default port belongs to the user's own daemon. A configuration in JSON is not changed.
func withListener(yaml string) string {
	if strings.HasPrefix(yaml, "{") {
		return yaml
	}
	for line := range strings.Lines(yaml) {
		if strings.HasPrefix(line, "listen:") {
			return yaml
		}
	}
	return "listen: {http: [{addr: \"127.0.0.1:0\"}]}\n" + yaml
}

// environment returns the whole environment of the daemon. It contains nothing of the tester's
// own configuration, tokens or sessions.
func environment(d *Daemon, more []string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + d.Dir,
		"LANG=C.UTF-8",
		"TMPDIR=" + os.TempDir(),
		"DOORWARD_CONFIG=" + d.Config,
		"DOORWARD_STATE_DIR=" + d.State,
		"DOORWARD_RUNTIME_DIR=" + d.Runtime,
	}
	return append(env, more...)
}

// binary returns the program under test. A missing program fails the test instead of skipping it:
// a suite that silently tests nothing is worse than one that fails.
func binary(t testing.TB, given string) string {
	t.Helper()
	if given == "" {
		given = os.Getenv("DOORWARD_BIN")
	}
	if given == "" {
		given = filepath.Join(ModuleRoot(t), "bin", "doorward")
	}
	path, err := filepath.Abs(given)
	must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no doorward binary: %v (run `make build`, or set DOORWARD_BIN)", err)
	}
	return path
}

// ModuleRoot returns the directory of go.mod, searched upwards from the test's directory.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = up
	}
}

// shortDir returns a temporary directory whose name leaves room for a socket: the kernel's limit
// is 107 bytes, and t.TempDir would use most of it for test names.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing the daemon's home: %v", err)
		}
	})
	for _, sub := range []string{"state", "run"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
	}
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("preparing doorward: %w", err))
	}
}
