package listen

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// The test binary acts as other processes when helperEnv is set.
const helperEnv = "DOORWARD_LISTEN_TEST_HELPER"

// queries counts the queries that the resolver would have sent over the network. All names
// of the test process are resolved this way, and no query is answered.
var queries atomic.Int64

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		if err := helper(mode, os.Args[1:]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		queries.Add(1)
		return nil, errors.New("no name server in this test")
	}}
	os.Exit(m.Run())
}

func helper(mode string, args []string) error {
	switch mode {
	case "dial": // network, address: connects, sends a byte, prints what it reads
		c, err := net.Dial(args[0], args[1])
		if err != nil {
			return err
		}
		defer c.Close()
		c.Write([]byte("x"))
		fmt.Println("connected")
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := c.Read(make([]byte, 1))
		fmt.Println("read", n, err == io.EOF || errors.Is(err, syscall.ECONNRESET))
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "dial-many": // address, number: holds connections until its stdin ends
		n, err := strconv.Atoi(args[1])
		var held []net.Conn
		for len(held) < n && err == nil {
			var c net.Conn
			c, err = net.Dial("tcp", args[0])
			held = append(held, c)
		}
		fmt.Println("connected")
		io.Copy(io.Discard, os.Stdin)
		runtime.KeepAlive(held)
		return err
	case "dial-and-leave", "dial-and-leave-later": // path, data: connects, sends the data, leaves the descriptor to a child, exits
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		io.WriteString(c, strings.Join(args[1:], ""))
		if mode == "dial-and-leave-later" {
			os.Stdin.Read(make([]byte, 1))
		}
		if err := leave(c); err != nil {
			return err
		}
		fmt.Println("left")
		return nil
	case "ask", "ask-by-a-child", "ask-with-an-heir": // path: one request, another after a line on stdin; then it waits
		return ask(args[0], mode)
	case "ask-again": // on descriptor 3
		c, err := net.FileConn(os.NewFile(3, "socket"))
		if err != nil {
			return err
		}
		return request(c)
	case "serve-passed": // path: serves the socket that was passed, until its stdin ends
		return servePassed(args[0])
	case "hold":
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "listen": // path: a daemon that holds the socket until its stdin ends
		l, err := Open(context.Background(), Spec{Network: "unix", Addr: args[0]}, Credential{}, Options{})
		if err != nil {
			return err
		}
		fmt.Println("listening")
		io.Copy(io.Discard, os.Stdin)
		return l.Close()
	}
	return fmt.Errorf("no such helper: %s", mode)
}

// leave starts a child that holds the connection until its stdin ends.
func leave(c net.Conn) error {
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		return err
	}
	heir := exec.Command("/proc/self/exe")
	heir.Env = []string{helperEnv + "=hold"}
	heir.Stdin, heir.ExtraFiles = os.Stdin, []*os.File{f}
	return heir.Start()
}

// ask sends a request, waits for a line on stdin, and has a second one sent on
// the same connection, by itself or by a child that holds it too. An heir is a child that
// holds it from the beginning and sends nothing.
func ask(path, mode string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	if mode == "ask-with-an-heir" {
		if err := leave(c); err != nil {
			return err
		}
	}
	if err := request(c); err != nil {
		return err
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	if mode != "ask-by-a-child" {
		return request(c)
	}
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe")
	child.Env = []string{helperEnv + "=ask-again"}
	child.Stdin, child.Stdout, child.ExtraFiles = os.Stdin, os.Stdout, []*os.File{f}
	if err := child.Run(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// request sends one request and prints the first line of the answer.
func request(c net.Conn) error {
	fmt.Fprint(c, "GET /"+" HTTP/1.1\r\nHost: doorward\r\n\r\n")
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	first, _, _ := strings.Cut(string(b[:n]), "\r\n")
	if first == "" && err != nil {
		first = "closed"
	}
	fmt.Println(first)
	return nil
}

type helperProcess struct {
	*exec.Cmd
	out *bufio.Reader
	in  io.WriteCloser
}

func start(t *testing.T, attr *syscall.SysProcAttr, mode string, args ...string) *helperProcess {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{helperEnv + "=" + mode}
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	return launch(t, cmd)
}

// launch starts a helper and ends it with the test.
func launch(t *testing.T, cmd *exec.Cmd) *helperProcess {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	return &helperProcess{cmd, bufio.NewReader(out), in}
}

func (h *helperProcess) line(t *testing.T) string {
	t.Helper()
	s, err := h.out.ReadString('\n')
	if err != nil {
		t.Fatalf("helper said %q and %v", s, err)
	}
	return strings.TrimSpace(s)
}

func asUID(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a process with another uid")
	}
}

// shortDir is a private directory whose path leaves room for a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func mustOpen(t testing.TB, s Spec, c Credential, o Options) *Listener {
	t.Helper()
	l, err := Open(t.Context(), s, c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func openSocket(t testing.TB, o Options) *Listener {
	t.Helper()
	return mustOpen(t, Spec{Network: "unix", Addr: filepath.Join(shortDir(t), "s")}, Credential{}, o)
}

func openLoopback(t testing.TB, o Options) *Listener {
	t.Helper()
	return mustOpen(t, Spec{Network: "tcp", Addr: "127.0.0.1:0"}, Credential{}, o)
}

// accepted runs Accept in a goroutine and returns a channel of the connections.
func accepted(t *testing.T, l *Listener) <-chan net.Conn {
	t.Helper()
	ch := make(chan net.Conn, 4096)
	go func() {
		defer close(ch)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ch <- c
		}
	}()
	return ch
}

func next(t *testing.T, ch <-chan net.Conn) net.Conn {
	t.Helper()
	select {
	case c := <-ch:
		if c == nil {
			t.Fatal("the listener was closed")
		}
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(20 * time.Second):
		t.Fatal("no connection was handed out")
		return nil
	}
}

func originOf(l *Listener, c net.Conn) *Origin {
	return From(l.ConnContext(context.Background(), c))
}

// heard collects the reasons that OnRefused gets.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) hear(r Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r.Reason)
}

func (h *heard) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.all...)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	doortest.Until(t, 20*time.Second, what, ok)
}

// listening reads /proc/net/tcp and tcp6 for sockets that listen on port.
func listening(t *testing.T, port uint16) (ends []netip.AddrPort) {
	t.Helper()
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Skipf("needs %s: %v", name, err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" {
				continue
			}
			addr, hexPort, _ := strings.Cut(f[1], ":")
			var p uint16
			fmt.Sscanf(hexPort, "%X", &p)
			if p == port {
				ends = append(ends, netip.AddrPortFrom(procAddr(t, addr), p))
			}
		}
	}
	return ends
}

// procAddr reads the kernel's form: 32-bit words, each in machine order.
func procAddr(t *testing.T, s string) netip.Addr {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+4 <= len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip
}

// freePort is a port that no other test gets meanwhile, and that has no listener.
func freePort(t *testing.T) uint16 {
	t.Helper()
	return uint16(doortest.FreePort(t))
}
