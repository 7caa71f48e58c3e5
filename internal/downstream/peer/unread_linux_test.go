package peer

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

// listening returns local listeners of each kind; accept returns the daemon's end.
func listening(t *testing.T) map[string]func() (network, addr string, accept func() net.Conn) {
	all := map[string]func() (string, string, func() net.Conn){
		"unix": func() (string, string, func() net.Conn) {
			ln, path := unixListener(t)
			return "unix", path, func() net.Conn { return puppet.AcceptUnix(t, ln) }
		},
		"unix, guarded": func() (string, string, func() net.Conn) {
			ln, path := unixListener(t)
			return "unix", path, func() net.Conn {
				c := puppet.AcceptUnix(t, ln)
				creds, err := attest.OfUnix(c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { creds.Close() })
				return attest.Guard(c, creds, nil)
			}
		},
	}
	for _, p := range pairs {
		all[p.name] = func() (string, string, func() net.Conn) {
			ln := tcpListener(t, p.listen)
			return "tcp", dialAddr(ln, p.dial), func() net.Conn {
				c, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			}
		}
	}
	return all
}

func unread(t *testing.T, c net.Conn) int {
	t.Helper()
	n, err := Unread(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Bytes count as unread until the client has read the last one, also over TCP, whose kernel
// acknowledges them before. The count may be larger than the number of bytes.
func TestBytesCountAsUnreadUntilTheyAreRead(t *testing.T) {
	t.Parallel()
	for name, open := range listening(t) {
		t.Run(name, func(t *testing.T) {
			network, addr, accept := open()
			c, err := net.Dial(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s := accept()
			if n := unread(t, s); n != 0 {
				t.Fatalf("nothing was written and %d are unread", n)
			}
			for range 2 {
				if _, err := s.Write([]byte(": keep-alive\n\n")); err != nil {
					t.Fatal(err)
				}
			}
			acknowledged(t, network, s)
			if n := unread(t, s); n < 28 {
				t.Errorf("28 bytes were written and %d are unread", n)
			}
			io.ReadFull(c, make([]byte, 27))
			if n := unread(t, s); n < 1 {
				t.Errorf("one byte is left and %d are unread", n)
			}
			io.ReadFull(c, make([]byte, 1))
			puppet.Eventually(t, "all is read", func() bool { return unread(t, s) == 0 })
			c.Close()
			s.Close()
			if n, err := Unread(s); err == nil {
				t.Errorf("a closed connection has %d unread", n)
			}
		})
	}
}

// acknowledged waits until the kernel of the client has taken what was written. Over a Unix
// socket it has taken it with the write.
func acknowledged(t *testing.T, network string, c net.Conn) {
	t.Helper()
	puppet.Eventually(t, "the bytes are acknowledged", func() bool {
		n, err := unsent(c)
		return network == "unix" || err == nil && n == 0
	})
}

// A peek of the client does not count as a read.
func TestAPeekIsNoRead(t *testing.T) {
	t.Parallel()
	for name, open := range listening(t) {
		t.Run(name, func(t *testing.T) {
			network, addr, accept := open()
			c, err := net.Dial(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s := accept()
			s.Write([]byte("x"))
			raw, _ := c.(syscall.Conn).SyscallConn()
			raw.Read(func(fd uintptr) bool {
				n, _, _ := unix.Recvfrom(int(fd), make([]byte, 8), unix.MSG_PEEK|unix.MSG_DONTWAIT)
				return n == 1
			})
			if unread(t, s) == 0 {
				t.Error("a peek counts as a read")
			}
		})
	}
}

// Bytes to a stopped process stay unread although its kernel accepts them, until the process
// goes on.
func TestAStoppedProcessReadsNothing(t *testing.T) {
	t.Parallel()
	for name, open := range listening(t) {
		t.Run(name, func(t *testing.T) {
			network, addr, accept := open()
			h := puppet.Start(t, nil, "swallow", network, addr)
			s := accept()
			h.Line(t, "connected")
			s.Write([]byte("one"))
			puppet.Eventually(t, "a running process reads", func() bool { return unread(t, s) == 0 })
			stop(t, h)
			s.Write([]byte("two"))
			acknowledged(t, network, s)
			if unread(t, s) == 0 {
				t.Error("a stopped process has read")
			}
			h.Process.Signal(syscall.SIGCONT)
			puppet.Eventually(t, "it goes on", func() bool { return unread(t, s) == 0 })
			stop(t, h)
			s.Write([]byte("three"))
			h.Process.Kill()
			h.Wait()
			puppet.Eventually(t, "an ended process", func() bool {
				n, err := Unread(s)
				return errors.Is(err, ErrUnreadUnknown) && network == "tcp" || err == nil && n == 0 && network == "unix" // a Unix socket frees what is left
			})
		})
	}
}

// stop stops the process and waits until the kernel reports it.
func stop(t *testing.T, h *puppet.Helper) {
	t.Helper()
	if err := h.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	puppet.Eventually(t, "it is stopped", func() bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, h.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		return err == nil && info.Signo == int32(unix.SIGCHLD)
	})
}

func TestAPipeTellsNothingOfItsReader(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := Unread(a); !errors.Is(err, ErrUnreadUnknown) {
		t.Errorf("%v", err)
	}
}

// swallow connects and reads to the end.
func swallow(args []string) error {
	c, err := net.Dial(args[0], args[1])
	if err != nil {
		return err
	}
	defer c.Close()
	os.Stdout.WriteString("connected\n")
	io.Copy(io.Discard, c)
	return nil
}
