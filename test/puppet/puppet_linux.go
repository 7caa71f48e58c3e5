// Package puppet runs helper processes for tests of process identity. A helper is the test binary
// itself, started again. It writes lines to its standard output and ends when its standard input
// ends.
package puppet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Env is the environment variable that makes a test binary run as a helper instead of running its
// tests.
const Env = "DOORWARD_PUPPET"

// Stages are further helpers of a package, by their mode; Steps are further orders of its
// puppets.
type (
	Stages map[string]func(args []string) error
	Steps  map[string]func(args []string) (string, error)
)

// Main is the body of TestMain in a package whose tests run helpers.
func Main(m *testing.M, stages Stages, steps Steps) {
	mode := os.Getenv(Env)
	if mode == "" {
		os.Exit(m.Run())
	}
	if err := play(mode, os.Args[1:], stages, steps); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(mode string, args []string, stages Stages, steps Steps) error {
	switch mode {
	case "puppet":
		return dance(steps, args)
	case "dial": // network, address
		c, err := net.Dial(args[0], args[1])
		if err != nil {
			return err
		}
		defer c.Close()
		fmt.Println("connected", c.LocalAddr())
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "dial-then-drop": // path: connects as it is, then becomes uid 65534
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
		fmt.Println("connected")
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "dial-and-leave": // path: connects, leaves the descriptor to a child, exits
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		f, err := c.(*net.UnixConn).File()
		if err != nil {
			return err
		}
		heir := exec.Command("/proc/self/exe")
		heir.Env = []string{Env + "=hold"}
		heir.Stdin, heir.ExtraFiles = os.Stdin, []*os.File{f}
		if err := heir.Start(); err != nil {
			return err
		}
		fmt.Println("left")
		return nil
	case "hold":
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "pass-descriptor": // path
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		_, _, err = c.(*net.UnixConn).WriteMsgUnix([]byte("x"), unix.UnixRights(0), nil)
		fmt.Println("sent", errors.Is(err, unix.EPERM), err)
		return nil
	}
	if f := stages[mode]; f != nil {
		return f(args)
	}
	return fmt.Errorf("no such helper: %s", mode)
}

// Helper is a helper process.
type Helper struct {
	*exec.Cmd
	In  io.WriteCloser
	Out *bufio.Reader
	End func()
}

// Start runs a helper. attr may give it another uid or namespaces.
func Start(t testing.TB, attr *syscall.SysProcAttr, mode string, args ...string) *Helper {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...) // works for uids that cannot reach the binary's directory
	// The helper runs the mutant of its test (test/mutate).
	cmd.Env = []string{Env + "=" + mode, "MUTANT=" + os.Getenv("MUTANT")}
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, unix.EPERM) && attr != nil {
			t.Skipf("cannot start a process with these ids or namespaces: %v", err)
		}
		t.Fatal(err)
	}
	h := &Helper{Cmd: cmd, In: in, Out: bufio.NewReader(out)}
	h.End = func() { in.Close(); cmd.Process.Kill(); cmd.Wait() }
	t.Cleanup(h.End)
	return h
}

// Line reads one line of the helper and checks its first word.
func (h *Helper) Line(t testing.TB, want string) string {
	t.Helper()
	s, err := h.Out.ReadString('\n')
	s = strings.TrimSpace(s)
	if err != nil || (want != "" && strings.Fields(s)[0] != want) {
		t.Fatalf("helper said %q (%v), want %q", s, err, want)
	}
	return s
}

func AsUID(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{4, uid}}}
}

func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a process with another uid")
	}
}

// OpenDir returns a new directory that every uid can reach and write to.
func OpenDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dwpeer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// WaitExit waits for the helper's end without waiting for its pipes, which its children may still
// hold.
func (h *Helper) WaitExit() error {
	_, err := h.Process.Wait()
	return err
}

func AcceptUnix(t *testing.T, ln *net.UnixListener) *net.UnixConn {
	t.Helper()
	ln.SetDeadline(time.Now().Add(30 * time.Second))
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// Socket is the descriptor of a puppet's connection. Its children and the programs that it
// executes inherit it.
const Socket = 100

// Puppet is a helper that carries out one order a line. A process that it starts as its successor
// takes over its pipe and reads the next line.
type Puppet struct{ *Helper }

// New starts a puppet, connected to path unless that is empty.
func New(t *testing.T, attr *syscall.SysProcAttr, path string) Puppet {
	t.Helper()
	p := Puppet{Start(t, attr, "puppet")}
	if path != "" {
		p.Do(t, "dial", path)
	}
	return p
}

// Do gives an order and waits for the answer.
func (p Puppet) Do(t *testing.T, order ...string) string {
	t.Helper()
	p.Tell(t, order...)
	answer := p.Line(t, "")
	if word, rest, _ := strings.Cut(answer, " "); word == "done" {
		return rest
	}
	t.Fatalf("%q: %s", order, answer)
	return ""
}

// Tell gives an order that has no answer.
func (p Puppet) Tell(t *testing.T, order ...string) {
	t.Helper()
	words := make([]string, len(order))
	for i, w := range order {
		words[i] = strconv.Quote(w)
	}
	if _, err := p.In.Write([]byte(strings.Join(words, "\t") + "\n")); err != nil {
		t.Fatal(err)
	}
}

// CopyOf copies a program to a file with the given name in a new directory, and returns its path.
func CopyOf(t *testing.T, name, program string) string {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(OpenDir(t), name)
	syscall.ForkLock.RLock() // otherwise a process that is forked meanwhile holds the file open for writing
	err = os.WriteFile(path, b, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
