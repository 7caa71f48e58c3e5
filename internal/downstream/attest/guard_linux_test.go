package attest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// guarded is a guarded connection with the breaches that were reported for it.
type guarded struct {
	net.Conn
	inner *net.UnixConn
	creds *Credentials

	mu       sync.Mutex
	breaches []string
}

func (g *guarded) heard() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breaches
}

func guardOf(t testing.TB, c *net.UnixConn) *guarded {
	t.Helper()
	creds, err := OfUnix(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { creds.Close() })
	return guardWith(c, creds)
}

func guardWith(c *net.UnixConn, creds *Credentials) *guarded {
	g := &guarded{inner: c, creds: creds}
	g.Conn = Guard(c, creds, func(reason string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.breaches = append(g.breaches, reason)
	})
	return g
}

// says reads the next bytes.
func (g *guarded) says(t *testing.T) (string, error) {
	t.Helper()
	g.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 64)
	n, err := g.Read(b)
	return string(b[:n]), err
}

func (g *guarded) mustSay(t *testing.T, want string) {
	t.Helper()
	if got, err := g.says(t); got != want || err != nil {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// mustBreak fails unless the next read is a breach that is reported once, returns no bytes
// and closes the connection.
func (g *guarded) mustBreak(t *testing.T, want string) {
	t.Helper()
	for range 2 {
		if got, err := g.says(t); got != "" || !errors.Is(err, ErrBreach) {
			t.Fatalf("read %q, %v; want a breach", got, err)
		}
	}
	if got := g.heard(); len(got) != 1 || got[0] != want {
		t.Errorf("heard %q, want %q once", got, want)
	}
	if _, err := g.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestBytesOfTheConnectorAreRead(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	p.Do(t, "say", "before the accept ")
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	p.Do(t, "say", "and after")
	g.mustSay(t, "before the accept and after")
	if _, err := g.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if got := p.Do(t, "hear"); got != `"answer"` {
		t.Errorf("heard %s", got)
	}
	if err := g.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := p.Do(t, "hear"); got != `""` {
		t.Errorf("after CloseWrite it heard %s", got)
	}
	p.Do(t, "hangup") // the end of the stream has no writer
	if got, err := g.says(t); got != "" || err != io.EOF {
		t.Errorf("at the end: %q, %v", got, err)
	}
	if len(g.heard()) != 0 {
		t.Errorf("heard %q", g.heard())
	}
}

// A guarded connection has no method that reads without the check.
func TestAGuardedConnectionHasNoUncheckedRead(t *testing.T) {
	t.Parallel()
	ln, _ := unixListener(t)
	c, _ := ownConnection(t, ln)
	for what, reached := range map[string]bool{
		"ReadFrom": is[interface {
			ReadFrom([]byte) (int, net.Addr, error)
		}](c),
		"io.WriterTo": is[io.WriterTo](c),
		"SyscallConn": is[syscall.Conn](c) || is[interface{ File() (*os.File, error) }](c),
		"ReadMsgUnix": is[interface {
			ReadMsgUnix(b, oob []byte) (int, int, int, *net.UnixAddr, error)
		}](c),
		"net.UnixConn": is[*net.UnixConn](c),
	} {
		if reached {
			t.Errorf("%s reads without a check", what)
		}
	}
}

func is[T any](v any) bool { _, ok := v.(T); return ok }

// ownConnection returns both ends of a connection within this process.
func ownConnection(t testing.TB, ln *net.UnixListener) (net.Conn, *net.UnixConn) {
	t.Helper()
	client, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ln.SetDeadline(time.Now().Add(10 * time.Second))
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return guardOf(t, c).Conn, client
}

func TestAGuardedConnectionReadsAndWritesLikeAnyOther(t *testing.T) {
	t.Parallel()
	ln, _ := unixListener(t)
	c, client := ownConnection(t, ln)
	if n, err := c.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read: %d, %v", n, err)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() || !strings.HasPrefix(err.Error(), "read unix") {
		t.Errorf("past the deadline: %v", err)
	}
	c.SetDeadline(time.Time{})
	big := bytes.Repeat([]byte("0123456789"), 100_000)
	go client.Write(big)
	got := make([]byte, len(big))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, big) {
		t.Errorf("a megabyte: %v, equal %v", err, bytes.Equal(got, big))
	}
	blocked := make(chan error)
	go func() { _, err := c.Read(make([]byte, 1)); blocked <- err }()
	time.Sleep(10 * time.Millisecond)
	c.Close()
	if err := <-blocked; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read that Close interrupts: %v", err)
	}
	if c.RemoteAddr() == nil || c.LocalAddr().String() != ln.Addr().String() {
		t.Errorf("addresses %v, %v", c.LocalAddr(), c.RemoteAddr())
	}
}

// Bytes from a child that inherited the descriptor of an exited connector are a breach.
func TestAConnectionLeftToAChildIsNotHeard(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	p.Do(t, "say", "mine")
	g.mustSay(t, "mine")
	p.Do(t, "heir")
	if err := p.WaitExit(); err != nil {
		t.Fatal(err)
	}
	p.Do(t, "say", "stolen")
	g.mustBreak(t, BreachWriter)
}

// Bytes from a child of a living connector are a breach.
func TestAChildIsNotHeard(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	p.Do(t, "say", "mine")
	p.Do(t, "twin")
	p.Do(t, "say", "stolen")
	g.mustSay(t, "mine") // one read never returns bytes of two writers
	g.mustBreak(t, BreachWriter)
}

// Bytes from the child of a connector that has executed a trusted program are a breach. A
// look into /proc would find the trusted program, alive, with an unchanged start time.
func TestASpeakerBehindATrustedProgramIsNotHeard(t *testing.T) {
	t.Parallel()
	sleep := puppet.CopyOf(t, "sleep", "/bin/sleep")
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	stat := fmt.Sprintf("/proc/%d/stat", p.Process.Pid)
	began, _ := startTime(unix.AT_FDCWD, stat)
	p.Do(t, "mask", sleep, "1000")
	exe := fmt.Sprintf("/proc/%d/exe", p.Process.Pid)
	puppet.Eventually(t, "the connector is the trusted program", func() bool {
		s, _ := os.Readlink(exe)
		return s == sleep
	})
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	if now, err := startTime(unix.AT_FDCWD, stat); err != nil || now != began || !g.creds.Alive() {
		t.Fatalf("the stage is wrong: %d, %d, %v", began, now, err)
	}
	p.Do(t, "say", "stolen")
	g.mustBreak(t, BreachWriter)
}

// Bytes of a connector that has changed its uid are a breach: the ids of a connection are
// those at connect, and each writer must still have them.
func TestAProcessThatGaveUpItsUIDIsNotHeard(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	p.Do(t, "say", "as root")
	g.mustSay(t, "as root")
	p.Do(t, "setuid", "12345")
	p.Do(t, "say", "as nobody in particular")
	if g.creds.UID != 0 || !g.creds.Alive() {
		t.Errorf("uid %d, alive %v: the ids are those at connect", g.creds.UID, g.creds.Alive())
	}
	g.mustBreak(t, BreachWriter)
}

// Passed descriptors are closed and end the connection where the kernel lets them through:
// before Linux 6.16, or with SO_PASSRIGHTS as here.
func TestPassedDescriptorsAreClosed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, maxPassed} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ln, path := unixListener(t)
			passRights(t, ln)
			p := puppet.New(t, nil, path)
			g := guardOf(t, puppet.AcceptUnix(t, ln))
			p.Tell(t, "pass", fmt.Sprint(n))
			g.mustBreak(t, BreachDescriptors)
			if got := p.Line(t, ""); got != "done closed true" {
				t.Errorf("the descriptors that it passed: %s", got)
			}
		})
	}
}

func passRights(t *testing.T, ln *net.UnixListener) {
	t.Helper()
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1) })
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		t.Fatal(err)
	}
}

// Truncated control data is a breach, and its descriptors are closed: a process that runs out
// of descriptors gets only some of those that were passed.
func TestCutOffControlDataEndsTheConnection(t *testing.T) {
	t.Parallel()
	path := filepath.Join(puppet.OpenDir(t), "s")
	d := puppet.Start(t, nil, "out-of-descriptors", path)
	d.Line(t, "ready")
	p := puppet.New(t, nil, path)
	p.Tell(t, "pass", "20")
	if got := d.Line(t, ""); got != "broke "+BreachTruncated {
		t.Errorf("it %s", got)
	}
	d.End()
	if got := p.Line(t, ""); got != "done closed true" {
		t.Errorf("the descriptors that it passed: %s", got)
	}
}

// Without SO_PASSCRED a read does not name its writer, which is a breach.
func TestBytesWithoutAWriterAreNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(puppet.OpenDir(t), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := puppet.New(t, nil, path)
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	p.Do(t, "say", "anonymous")
	g.mustBreak(t, BreachUnattested)
}

// Bytes of a connector that was killed before they were read are a breach.
func TestBytesOfADeadProcessAreDiscarded(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	p.Do(t, "say", "last words")
	p.End()
	g.mustBreak(t, BreachDead)
}

// A read after the credentials were closed returns net.ErrClosed and is no breach.
func TestClosingIsNoBreach(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	g := guardOf(t, puppet.AcceptUnix(t, ln))
	p.Do(t, "say", "too late")
	g.creds.Close()
	if got, err := g.says(t); got != "" || !errors.Is(err, net.ErrClosed) || len(g.heard()) != 0 {
		t.Errorf("read %q, %v, heard %q", got, err, g.heard())
	}
}

func TestOnAnOlderKernelTheWriterIsCheckedAllTheSame(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	c := puppet.AcceptUnix(t, ln)
	creds, err := attestConn(t, c, func(int) (int, error) { return -1, unix.ENOPROTOOPT })
	if err != nil {
		t.Fatal(err)
	}
	defer creds.Close()
	g := guardWith(c, creds)
	p.Do(t, "say", "mine")
	g.mustSay(t, "mine")
	p.Do(t, "twin")
	p.Do(t, "say", "stolen")
	g.mustBreak(t, BreachWriter)
}
