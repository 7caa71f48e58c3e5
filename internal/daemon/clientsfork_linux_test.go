package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// TestAClientIsNotedWhileItStartsAProcess: a child that still shares the descriptors of a
// client is not noted in place of the client. It would be forgotten at its end, and the shell
// of the client would be taken for a terminal of the operator.
func TestAClientIsNotedWhileItStartsAProcess(t *testing.T) {
	t.Parallel()
	c, holders := &clients{log: slog.New(slog.DiscardHandler)}, peer.NewHolders(-1)
	addr := served(t, c, holders)
	given, shared := dialled(t, addr), unconnected(t)
	child := withDescriptors(t, given.file, shared)
	given.close()
	begins(t, holders, addr, given, child)
	to := netip.MustParseAddrPort(addr)
	if err := unix.Connect(int(shared.Fd()), &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(shared, "GET /mcp HTTP/1.0\r\nHost: %s\r\n\r\n", addr)
	if n, err := shared.Read(make([]byte, 1)); n != 1 {
		t.Fatal(err)
	}
	if !c.above([]string{ownInstance(t)}, false) {
		t.Errorf("noted: %v", c.known)
	}
}

// begins makes the next search begin with a process, the only holder of a connection. For a
// moment, a process that another test starts holds it too.
func begins(t *testing.T, holders *peer.Holders, addr string, of dialledConn, with int) {
	t.Helper()
	local, remote := netip.MustParseAddrPort(addr), netip.MustParseAddrPort(of.LocalAddr().String())
	for end := time.Now().Add(20 * time.Second); ; {
		found, err := holders.Find(local, remote)
		if err == nil && int(found.PID) == with {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v %v, want process %d", found, err, with)
		}
	}
}

// dialledConn is a connection with a second descriptor, file, that a child can have.
type dialledConn struct {
	net.Conn
	file *os.File
}

func dialled(t *testing.T, addr string) dialledConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	d := dialledConn{conn, f}
	t.Cleanup(d.close)
	return d
}

func (d dialledConn) close() {
	d.Conn.Close()
	d.file.Close()
}

// unconnected makes a socket that is not connected yet.
func unconnected(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	return f
}

// withDescriptors starts a program that has files at the same descriptors as this process, as
// a child has until it executes its program, and returns its number.
func withDescriptors(t *testing.T, files ...*os.File) (pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	for _, f := range files {
		n := int(f.Fd()) - 3 // the first extra file is descriptor 3
		for len(cmd.ExtraFiles) <= n {
			cmd.ExtraFiles = append(cmd.ExtraFiles, nil)
		}
		cmd.ExtraFiles[n] = f
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func ownInstance(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	start, err := attest.StartOf(b)
	if err != nil {
		t.Fatal(err)
	}
	return attest.Instance(int32(os.Getpid()), start)
}
