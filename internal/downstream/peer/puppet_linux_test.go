package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// puppetSocket is where a puppet keeps its connection: a descriptor that every
// child and every program after an exec has too.
const puppetSocket = 100

// puppet is a process that does what it is told, a line at a time. What it
// starts in its place takes over its pipe, and hears the next line.
type puppet struct{ *helperProcess }

// newPuppet starts a puppet, connected to path unless that is empty.
func newPuppet(t *testing.T, attr *syscall.SysProcAttr, path string) puppet {
	t.Helper()
	p := puppet{start(t, attr, "puppet")}
	if path != "" {
		p.do(t, "dial", path)
	}
	return p
}

// do gives an order and waits for the answer.
func (p puppet) do(t *testing.T, order ...string) string {
	t.Helper()
	p.tell(t, order...)
	answer := p.line(t, "")
	if word, rest, _ := strings.Cut(answer, " "); word == "done" {
		return rest
	}
	t.Fatalf("%q: %s", order, answer)
	return ""
}

// tell gives an order that has no answer.
func (p puppet) tell(t *testing.T, order ...string) {
	t.Helper()
	words := make([]string, len(order))
	for i, w := range order {
		words[i] = strconv.Quote(w)
	}
	if _, err := p.in.Write([]byte(strings.Join(words, "\t") + "\n")); err != nil {
		t.Fatal(err)
	}
}

// dance is the puppet's side.
func dance(args []string) error {
	if len(args) > 0 { // it has just taken somebody's place
		fmt.Println("done", os.Getpid())
	}
	for {
		line, err := lineOf(0)
		if err != nil {
			return nil
		}
		order := strings.Split(line, "\t")
		for i, w := range order {
			if order[i], err = strconv.Unquote(w); err != nil {
				return err
			}
		}
		answer, err := step(order[0], order[1:])
		if err != nil {
			fmt.Println("failed", err)
			continue
		}
		fmt.Println("done", answer)
	}
}

// lineOf reads no byte too many: the next line may be another process's.
func lineOf(fd int) (string, error) {
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

func step(order string, args []string) (answer string, err error) {
	switch order {
	case "dial":
		return "", dialRaw(args[0])
	case "say":
		_, err = unix.Write(puppetSocket, []byte(args[0]))
		return "", err
	case "hangup":
		return "", unix.Close(puppetSocket)
	case "hear": // answers with what it reads
		b := make([]byte, 256)
		n, err := unix.Read(puppetSocket, b)
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
	case "above":
		above, err := Above()
		names := make([]string, len(above))
		for i, p := range above {
			names[i] = p.Instance
		}
		return strings.Join(names, " "), err
	case "ppid":
		return strconv.Itoa(os.Getppid()), nil
	case "protect":
		return "", ProtectSelf()
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
		return "", syscall.Exec(args[0], []string{args[0], "again"}, []string{helperEnv + "=puppet"})
	case "heir", "twin", "mask", "mother":
		return succeed(order, args)
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
	raw.Control(func(fd uintptr) { err = unix.Dup3(int(fd), puppetSocket, 0) })
	if err == nil {
		err = unix.SetNonblock(puppetSocket, false)
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
	child.Env = []string{helperEnv + "=puppet"}
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

// passDescriptors sends the writing ends of a pipe, closes its own, and says
// whether anybody has one of them still.
func passDescriptors(n int) (string, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return "", err
	}
	defer unix.Close(p[0])
	rights := unix.UnixRights(slices.Repeat([]int{p[1]}, n)...)
	err := unix.Sendmsg(puppetSocket, []byte("x"), rights, nil, 0)
	unix.Close(p[1])
	if err != nil {
		return "", err
	}
	n, err = unix.Read(p[0], make([]byte, 1))
	return fmt.Sprint("closed ", n == 0), err
}
