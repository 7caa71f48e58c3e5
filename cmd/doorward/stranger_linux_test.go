package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/doortest"
)

// stranger is a process that connects to the daemon's socket in an unusual way
// and prints what it got:
//
//	stranger ask SOCK|HOST:PORT    connects and asks for its principal
//	stranger heir SOCK             connects, leaves the connection to a child and exits; the child asks
//	stranger twin SOCK             connects, and a child asks on the connection while it lives
//	stranger mask SOCK PROGRAM     connects, starts a child that asks, and becomes PROGRAM itself
//	stranger change SOCK           connects, asks, becomes another program, and that asks again
//	stranger session SOCK          opens a session and makes a call in it
//	stranger forge SOCK PROGRAM    connects, sends a call, and becomes PROGRAM, which hears the answer
//	stranger pass SOCK             connects and sends a descriptor with its request
//	stranger reads SOCK [TOKEN]    gets instructions and stays; see reader_linux_test.go
//	stranger posts SOCK FILE       sends each line PATH BODY of a file as a POST in JSON
//	stranger listens SOCK          listens there in the daemon's place, and says `ready`
//	stranger pidns SOCK            asks from a pid namespace of its own
//	stranger hidden WAY HOST:PORT  asks by a socket that no table of descriptors shows; see hidden_linux_test.go
//	stranger guess HOST:PORT TOKEN HEADER [RIGHT HEADER…]  sends tokens that begin so until one is not compared, and says `kept out`
//	stranger as UID MODE SOCK      any of these as another user
//	stranger named NAME MODE SOCK  any of these from a program called NAME, which is this one with another digest
//	stranger run PROGRAM ARG…      starts PROGRAM and waits for it: its parent
//
// It prints the status and the body of each answer, or `closed` when the
// connection ended without one.
func stranger() {
	if err := strange(os.Args[1:]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// inherited is the descriptor of a connection that another process opened.
const inherited = 3

func strange(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: stranger MODE SOCK …")
	}
	switch mode, sock := args[0], args[1]; mode {
	case "ask":
		c, err := reach(sock)
		if err != nil {
			return err
		}
		return askWho(c)
	case "speak": // on the inherited connection, after the process PID is gone
		pid, err := strconv.Atoi(sock)
		if err != nil {
			return err
		}
		for unix.Kill(pid, 0) == nil && os.Getppid() == pid && len(args) > 2 {
			time.Sleep(time.Millisecond)
		}
		return speak()
	case "heir":
		_, err := leave(sock, "over")
		return err
	case "twin":
		child, err := leave(sock)
		if err != nil {
			return err
		}
		return child.Wait()
	case "mask":
		if _, err := leave(sock); err != nil {
			return err
		}
		return syscall.Exec(args[2], args[2:], os.Environ())
	case "change":
		return change(sock)
	case "session":
		return inSession(sock)
	case "forge":
		return forge(sock, args[2])
	case "hear":
		c, err := net.FileConn(os.NewFile(inherited, "connection"))
		if err != nil {
			return err
		}
		return hear(c)
	case "pass":
		return pass(sock)
	case "reads":
		return reads(sock, args[2:])
	case "hidden":
		return askUnseen(sock, args[2])
	case "guess":
		return guess(sock, args[2], args[3], args[4:])
	case "posts":
		return posts(sock, args[2])
	case "listens":
		return listens(sock)
	case "pidns":
		return again(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}, "ask", sock)
	case "as":
		uid, err := strconv.ParseUint(sock, 10, 32)
		if err != nil {
			return err
		}
		return again(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}, args[2:]...)
	case "named":
		return named(sock, args[2:])
	case "run":
		cmd := exec.Command(sock, args[2:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	default:
		return fmt.Errorf("no such mode: %s", mode)
	}
}

// guess sends tokens with a header until one is not compared. Then right is sent, with each of
// the other headers, and must not be compared either. A source is kept out for a part of a
// second at a time, so what comes later than that is tried again.
func guess(addr, token, header string, more []string) error {
	try := func(token, header string) (status int) {
		name, value, _ := strings.Cut(header, ": ")
		r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/mcp", nil)
		if err != nil {
			return 0
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set(name, value)
		resp, err := doortest.Client().Do(r)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	kept := func(i int) bool { return try(token+strconv.Itoa(i), header) == http.StatusTooManyRequests }
	for i := range 10_000 {
		if !kept(i) {
			continue
		}
		if len(more) < 2 {
			fmt.Println("kept out")
			return nil
		}
		if try(more[0], more[1]) == http.StatusTooManyRequests {
			more = append(more[:1:1], more[2:]...)
		}
	}
	return errors.New("never kept out")
}

// again runs a mode in a process with other attributes.
func again(attr *syscall.SysProcAttr, args ...string) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "stranger"
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, attr
	return cmd.Run()
}

// named runs a mode from a copy of this program.
func named(name string, args []string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(self, name...), 0o700); err != nil { // another digest
		return err
	}
	cmd := &exec.Cmd{Path: path, Args: append([]string{"stranger"}, args...), Stdout: os.Stdout, Stderr: os.Stderr}
	return cmd.Run()
}

// leave connects and hands the connection to a child that speaks on it; with
// "over" once this process is gone.
func leave(sock string, when ...string) (*exec.Cmd, error) {
	f, err := connection(sock)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"speak", strconv.Itoa(os.Getpid())}, when...)...)
	cmd.Args[0] = "stranger"
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{f}
	return cmd, cmd.Start()
}

// connection is an accepted connection: the daemon has looked at its opener.
func connection(sock string) (*os.File, error) {
	c, err := net.Dial("unix", sock)
	if err != nil {
		return nil, err
	}
	time.Sleep(200 * time.Millisecond)
	return c.(*net.UnixConn).File()
}

func speak() error {
	c, err := net.FileConn(os.NewFile(inherited, "connection"))
	if err != nil {
		return err
	}
	return askWho(c)
}

// change asks as this program, then becomes another one that has the
// connection as descriptor 3, and asks again.
func change(sock string) error {
	f, err := connection(sock)
	if err != nil {
		return err
	}
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	if err := askWho(c); err != nil {
		return err
	}
	if err := unix.Dup3(int(f.Fd()), inherited, 0); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", []string{"stranger", "speak", "0"}, os.Environ())
}

// inSession makes a call that echoes the id of a session.
func inSession(sock string) error {
	c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", sock) }}}
	id := ""
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"stranger","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}`,
	} {
		r, err := http.NewRequest("POST", "http://doorward/mcp/notes", strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		if id != "" {
			r.Header.Set("Mcp-Session-Id", id)
		}
		resp, err := c.Do(r)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if id != "" {
			fmt.Println(resp.StatusCode, string(answer))
		}
		id = resp.Header.Get("Mcp-Session-Id")
	}
	return nil
}

// forge sends a call, and becomes a program that may make this call and never made it.
func forge(sock, program string) error {
	c, err := net.Dial("unix", sock)
	if err != nil {
		return err
	}
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		return err
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `,"name":"echo"}}`
	if _, err := fmt.Fprintf(f, "POST /mcp/notes HTTP/1.1\r\nHost: doorward\r\nContent-Type: application/json\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return err
	}
	if err := unix.Dup3(int(f.Fd()), inherited, 0); err != nil {
		return err
	}
	return syscall.Exec(program, []string{"stranger", "hear", sock}, os.Environ())
}

// pass sends a descriptor along with a whole request.
func pass(sock string) error {
	c, err := net.Dial("unix", sock)
	if err != nil {
		return err
	}
	_, _, err = c.(*net.UnixConn).WriteMsgUnix([]byte(who), unix.UnixRights(0), nil)
	if errors.Is(err, unix.EPERM) {
		fmt.Println("closed: descriptors are not accepted")
		return nil
	}
	if err != nil {
		return err
	}
	return hear(c)
}

// reach connects to a socket, or to an address.
func reach(to string) (net.Conn, error) {
	if strings.HasPrefix(to, "/") {
		return net.Dial("unix", to)
	}
	return net.Dial("tcp", to)
}

const who = "GET /admin/v1/whoami HTTP/1.1\r\nHost: doorward\r\n\r\n"

func askWho(c net.Conn) error {
	request := who
	if c.RemoteAddr().Network() == "tcp" {
		request = strings.Replace(who, "doorward", c.RemoteAddr().String(), 1)
	}
	if _, err := io.WriteString(c, request); err != nil {
		fmt.Println("closed:", err)
		return nil
	}
	return hear(c)
}

// hear prints one answer.
func hear(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("neither an answer nor an end")
	}
	if err != nil {
		fmt.Println("closed:", err)
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, strings.TrimSpace(string(body)))
	return err
}
