package peer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary plays the other processes itself: started with helperEnv set
// it does that and exits. Every helper talks by lines on stdout and ends when
// its stdin does.
const helperEnv = "DOORWARD_PEER_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		if err := helper(mode, os.Args[1:]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(mode string, args []string) error {
	switch mode {
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
		heir.Env = []string{helperEnv + "=hold"}
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
	case "ask-without-descriptors": // address: asks for the owner of its own connection
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: 0}); err != nil {
			return err
		}
		_, err = OwnerOfTCP(addrOf(c.RemoteAddr()), addrOf(c.LocalAddr()))
		fmt.Println("asked", err != nil, errors.Is(err, ErrUnavailable))
		return nil
	case "serve": // path: attests one connection and prints what it found
		ln, err := net.Listen("unix", args[0])
		if err != nil {
			return err
		}
		os.Chmod(args[0], 0o666)
		fmt.Println("ready")
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		creds, err := OfUnix(c.(*net.UnixConn))
		out := served{NoIdentity: errors.Is(err, ErrNoIdentity)}
		if err != nil {
			out.Err = err.Error()
		} else {
			out.UID, out.PID, out.Foreign = creds.UID, creds.PID, creds.Foreign
		}
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	if mode == "puppet" {
		return dance(args)
	}
	if f := stages[mode]; f != nil {
		return f(args)
	}
	return fmt.Errorf("no such helper: %s", mode)
}

type served struct {
	UID        uint32
	PID        int32
	Foreign    bool
	NoIdentity bool
	Err        string
}

type helperProcess struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end func()
}

// start runs a helper; attr may give it another uid or namespaces.
func start(t testing.TB, attr *syscall.SysProcAttr, mode string, args ...string) *helperProcess {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...) // works for uids that cannot reach the binary's directory
	cmd.Env = []string{helperEnv + "=" + mode}
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
	h := &helperProcess{Cmd: cmd, in: in, out: bufio.NewReader(out)}
	h.end = func() { in.Close(); cmd.Process.Kill(); cmd.Wait() }
	t.Cleanup(h.end)
	return h
}

// line reads one line of the helper and checks its first word.
func (h *helperProcess) line(t testing.TB, want string) string {
	t.Helper()
	s, err := h.out.ReadString('\n')
	s = strings.TrimSpace(s)
	if err != nil || (want != "" && strings.Fields(s)[0] != want) {
		t.Fatalf("helper said %q (%v), want %q", s, err, want)
	}
	return s
}

func asUID(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{4, uid}}}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a process with another uid")
	}
}

// openDir is a directory that every uid can reach.
func openDir(t *testing.T) string {
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

// unixListener listens where everybody may connect.
func unixListener(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	path := filepath.Join(openDir(t), "s")
	ln, err := (&net.ListenConfig{Control: ListenControl}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return ln.(*net.UnixListener), path
}

func acceptUnix(t *testing.T, ln *net.UnixListener) *net.UnixConn {
	t.Helper()
	ln.SetDeadline(time.Now().Add(10 * time.Second))
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func addrOf(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
