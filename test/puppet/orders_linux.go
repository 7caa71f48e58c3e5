package puppet

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

	"golang.org/x/sys/unix"
)

// dance runs a puppet: it carries out one order a line until its standard input ends.
func dance(further Steps, args []string) error {
	if len(args) > 0 { // it has replaced another process
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

// LineOf reads one line from fd. It reads one byte at a time, because the next line may be meant
// for another process.
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
	case "hear": // answers with what it has read, quoted
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
	case "exec": // replaces the puppet by another program, which inherits the descriptors
		return "", syscall.Exec(args[0], args, nil)
	case "become": // replaces the puppet by a puppet from another file
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

// succeed starts a child that reads the orders from now on. how says what the caller itself does
// then:
//
//	heir    exits
//	twin    waits for the child's end
//	mask    becomes the program in args
//	mother  starts the child from the file args[0] and waits for its end
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

// passDescriptors sends n copies of the writing end of a pipe, closes its own, and reports
// whether all of them are closed, that is, no other process holds one.
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
