package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// plainUser is a user without any right. As root a protected process can still
// do everything to itself, so that tests as root would not find what breaks.
const plainUser = 65534

// household is a daemon of plainUser with one stdio server, below dir.
type household struct {
	dir    string
	daemon *exec.Cmd
	log    *bytes.Buffer
	done   chan struct{}
}

// newHousehold starts the real program as plainUser with a secret in its
// environment, and waits until it is ready.
func newHousehold(t *testing.T) *household {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a process of another user")
	}
	dir, err := os.MkdirTemp("", "dwprotect")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &household{dir: dir, log: &bytes.Buffer{}, done: make(chan struct{})}
	h.furnish(t)
	h.daemon = h.command("doorward", "serve")
	h.daemon.Env = append(h.daemon.Env, "DOORWARD_TOKEN="+householdSecret)
	out, err := h.daemon.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go h.follow(out, ready)
	t.Cleanup(func() { h.daemon.Process.Kill(); <-h.done; h.gone(t) })
	select {
	case <-ready:
	case <-h.done:
		t.Fatalf("the daemon did not start:\n%s", h.log)
	case <-time.After(mailSoon):
		t.Fatal("the daemon is not ready")
	}
	return h
}

const householdSecret = "not-for-the-neighbours-0123456789"

// furnish makes the programs and the configuration of the daemon, owned by its user.
func (h *household) furnish(t *testing.T) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("listen: {http: []}\nmcpServers:\n  notes: {command: %[1]s/fakemcp, args: [legacy, %[1]s], doorward: {sandbox: off}}\n", h.dir)
	// No process that starts meanwhile may hold the program open for writing:
	// it could not be run then.
	syscall.ForkLock.RLock()
	err = os.WriteFile(filepath.Join(h.dir, "doorward"), self, 0o755)
	syscall.ForkLock.RUnlock()
	err = errors.Join(err,
		os.Symlink("doorward", filepath.Join(h.dir, "fakemcp")),
		os.Mkdir(filepath.Join(h.dir, "home"), 0o700),
		os.WriteFile(filepath.Join(h.dir, "doorward.yaml"), []byte(config), 0o600))
	err = errors.Join(err, filepath.WalkDir(h.dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, plainUser, plainUser))
	}))
	if err != nil {
		t.Fatal(err)
	}
}

// command is one of our programs as the household's user.
func (h *household) command(name string, args ...string) *exec.Cmd {
	cmd := &exec.Cmd{Path: filepath.Join(h.dir, "doorward"), Args: append([]string{name}, args...), Dir: h.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: plainUser, Gid: plainUser}}
	cmd.Env = []string{"PATH=" + h.dir + ":/usr/bin:/bin", "HOME=" + h.dir + "/home", "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0",
		"DOORWARD_CONFIG=" + h.dir + "/doorward.yaml", "DOORWARD_STATE_DIR=" + h.dir + "/state", "DOORWARD_RUNTIME_DIR=" + h.dir + "/run"}
	return cmd
}

func (h *household) follow(out io.Reader, ready chan struct{}) {
	defer close(h.done)
	b := make([]byte, 4096)
	for {
		n, err := out.Read(b)
		h.log.Write(b[:n])
		if ready != nil && strings.Contains(h.log.String(), "ready\n") {
			close(ready)
			ready = nil
		}
		if err != nil {
			h.daemon.Wait()
			return
		}
	}
}

// servers counts the stdio servers that run, and their supervisors.
func (h *household) servers() int {
	servers, supervisors := family(h.dir)
	return len(servers) + len(supervisors)
}

func (h *household) gone(t *testing.T) {
	t.Helper()
	if !poll(7*time.Second+late(), func() bool { return h.servers() == 0 }) {
		t.Errorf("%d processes of a server outlived their daemon", h.servers())
	}
}

// A daemon of a user without any right protects itself, and its servers start, work and end
// nevertheless.
func TestAProtectedDaemonKeepsItsServers(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHousehold(t)
			for range 2 {
				out, err := h.command("doorward", "call", "notes", "echo", "text=hello").CombinedOutput()
				if err != nil || !strings.Contains(string(out), "hello") {
					t.Fatalf("calling a stdio server: %v\n%s", err, out)
				}
			}
			if h.servers() == 0 {
				t.Error("no server runs")
			}
			h.daemon.Process.Signal(sig)
			<-h.done
			h.gone(t)
		})
	}
}

// Another process of the same user cannot read the environment, the memory and the
// descriptors of the daemon.
func TestTheDaemonCannotBeReadByItsOwnUser(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	proc := fmt.Sprintf("/proc/%d/", h.daemon.Process.Pid)
	if b, err := os.ReadFile(proc + "environ"); err != nil || !strings.Contains(string(b), householdSecret) {
		t.Fatalf("the stage is wrong: root reads %q, %v", b, err)
	}
	for _, argv := range [][]string{
		{"/bin/cat", proc + "environ"},
		{"/bin/cat", proc + "maps"},
		{"/bin/ls", proc + "fd"},
		{"/bin/ls", "-l", proc + "exe"},
		{"/bin/dd", "count=0", "if=" + proc + "mem"},
	} {
		spy := exec.Command(argv[0], argv[1:]...)
		spy.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: plainUser, Gid: plainUser}}
		out, err := spy.CombinedOutput()
		if err == nil || !regexp.MustCompile("Permission denied").Match(out) || strings.Contains(string(out), householdSecret) {
			t.Errorf("%q: %v\n%s", argv, err, out)
		}
	}
	limits, err := os.ReadFile(proc + "limits")
	if err != nil || !regexp.MustCompile(`(?m)^Max core file size +0 +0 `).Match(limits) {
		t.Errorf("%v, limits:\n%s", err, limits)
	}
	var out []byte
	seen := func() bool { // a program that is not read in time is read again after a minute
		out, err = h.command("doorward", "whoami", "--json").CombinedOutput()
		return err == nil && strings.Contains(string(out), `"exe_sha256"`)
	}
	if !poll(mailSoon, seen) {
		t.Errorf("it does not see its callers any more: %v\n%s", err, out)
	}
}
