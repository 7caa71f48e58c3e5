// Package puppet runs helper processes for tests about the identity of processes.
// The helpers are the test binary itself. A helper writes lines to its standard
// output and ends when its standard input does.
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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Env makes a test binary one of the helpers instead of the tests.
const Env = "DOORWARD_PUPPET"

// Stages are further helpers of a package, and Steps further orders of its puppets.
type (
	Stages map[string]func(args []string) error
	Steps  map[string]func(args []string) (string, error)
)

// Main is TestMain of a package whose tests run helpers.
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

// Start runs a helper; attr may give it another uid or namespaces.
func Start(t testing.TB, attr *syscall.SysProcAttr, mode string, args ...string) *Helper {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...) // works for uids that cannot reach the binary's directory
	cmd.Env = []string{Env + "=" + mode}
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

// OpenDir is a directory that every uid can reach.
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

// WaitExit waits for the helper, also while its children still hold its pipes.
func (h *Helper) WaitExit() error {
	_, err := h.Process.Wait()
	return err
}

func AcceptUnix(t *testing.T, ln *net.UnixListener) *net.UnixConn {
	t.Helper()
	ln.SetDeadline(time.Now().Add(10 * time.Second))
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// Socket is the descriptor of a puppet's connection. Its children, and its
// programs after an exec, have it too.
const Socket = 100

// Puppet is a helper that carries out one order a line. A process that it starts
// in its place takes over its pipe and reads the next line.
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

// dance is the loop of a puppet.
func dance(further Steps, args []string) error {
	if len(args) > 0 { // it has just taken somebody's place
		fmt.Println("done", os.Getpid())
	}
	for {
		line, err := LineOf(0)
		if err != nil {
			return nil
		}
		order := strings.Split(line, "\t")
		for i, w := range order {
			if order[i], err = strconv.Unquote(w); err != nil {
				return err
			}
		}
		answer, err := step(further, order[0], order[1:])
		if err != nil {
			fmt.Println("failed", err)
			continue
		}
		fmt.Println("done", answer)
	}
}

// LineOf reads no byte too many: the next line may be another process's.
func LineOf(fd int) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if n, err := unix.Read(fd, b); err == unix.EINTR {
			continue
		} else if n != 1 {
			return "", fmt.Errorf("no more orders: %v", err)
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

func step(further Steps, order string, args []string) (answer string, err error) {
	switch order {
	case "dial":
		return "", dialRaw(args[0])
	case "say":
		_, err = unix.Write(Socket, []byte(args[0]))
		return "", err
	case "hangup":
		return "", unix.Close(Socket)
	case "hear": // answers with what it reads
		b := make([]byte, 256)
		n, err := unix.Read(Socket, b)
		return fmt.Sprintf("%q", b[:max(n, 0)]), err
	case "setsid":
		_, err := unix.Setsid()
		return "", err
	case "setuid":
		uid, _ := strconv.Atoi(args[0])
		return "", syscall.Setuid(uid)
	case "pass":
		n, _ := strconv.Atoi(args[0])
		return passDescriptors(n)
	case "ppid":
		return strconv.Itoa(os.Getppid()), nil
	case "read": // a file
		b, err := os.ReadFile(args[0])
		return fmt.Sprintf("%q", b[:min(len(b), 100)]), err
	case "open": // for reading
		f, err := os.Open(args[0])
		if err == nil {
			f.Close()
		}
		return "", err
	case "attach": // to the process of a path below /proc
		pid, _ := strconv.Atoi(strings.Split(args[0], "/")[2])
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.PtraceAttach(pid); err != nil {
			return "", err
		}
		_, err := unix.Wait4(pid, nil, unix.WALL, nil)
		return "", errors.Join(err, unix.PtraceDetach(pid))
	case "list": // a directory
		names, err := os.ReadDir(args[0])
		return strconv.Itoa(len(names)), err
	case "exec": // another program, with our descriptors
		return "", syscall.Exec(args[0], args, nil)
	case "become": // a puppet again, from another file
		return "", syscall.Exec(args[0], []string{args[0], "again"}, []string{Env + "=puppet"})
	case "heir", "twin", "mask", "mother":
		return succeed(order, args)
	}
	if f := further[order]; f != nil {
		return f(args)
	}
	return "", fmt.Errorf("no such order: %s", order)
}

func dialRaw(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) { err = unix.Dup3(int(fd), Socket, 0) })
	if err == nil {
		err = unix.SetNonblock(Socket, false)
	}
	return err
}

// succeed starts a child that hears the orders from now on, and then
//
//	heir    exits
//	twin    waits for the child's end
//	mask    becomes the program in args
//	mother  starts it by way of args[0], a file, and waits
func succeed(how string, args []string) (string, error) {
	path := "/proc/self/exe"
	if how == "mother" {
		path = args[0]
	}
	child := exec.Command(path, "again")
	child.Env = []string{Env + "=puppet"}
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return "", err
	}
	switch how {
	case "heir":
		os.Exit(0)
	case "mask":
		return "", syscall.Exec(args[0], args, nil)
	}
	child.Wait()
	os.Exit(0)
	return "", nil
}

// passDescriptors sends the writing ends of a pipe, closes its own, and reports
// whether another process still has one of them.
func passDescriptors(n int) (string, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return "", err
	}
	defer unix.Close(p[0])
	rights := unix.UnixRights(slices.Repeat([]int{p[1]}, n)...)
	err := unix.Sendmsg(Socket, []byte("x"), rights, nil, 0)
	unix.Close(p[1])
	if err != nil {
		return "", err
	}
	n, err = unix.Read(p[0], make([]byte, 1))
	return fmt.Sprint("closed ", n == 0), err
}

// CopyOf copies a program to a path with a name of its own.
func CopyOf(t *testing.T, name, program string) string {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(OpenDir(t), name)
	syscall.ForkLock.RLock() // or a process that starts meanwhile holds it open for writing
	err = os.WriteFile(path, b, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
