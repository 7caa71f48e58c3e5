package attest

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// A connector that has exited and been reaped is refused, although its child holds the
// connection.
func TestADeadConnectorIsRefused(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	h := puppet.Start(t, nil, "dial-and-leave", path)
	h.Line(t, "left")
	if err := h.WaitExit(); err != nil {
		t.Fatal(err)
	}
	conn := puppet.AcceptUnix(t, ln)
	if c, err := OfUnix(conn); !errors.Is(err, ErrGone) {
		t.Fatalf("got %+v, %v; want ErrGone", c, err)
	}
	conn.Write([]byte("x")) // the heir is there: the connection itself still works
}

// Without SO_PEERPIDFD the instance is composed from /proc and is not called attested. The
// exit is noticed by pidfd, and without one by the process's directory.
func TestAProcessOnAnOlderKernel(t *testing.T) {
	t.Parallel()
	old := func(int) (int, error) { return -1, unix.ENOPROTOOPT }
	ln, path := unixListener(t)
	h := puppet.Start(t, nil, "dial", "unix", path)
	c, err := attestConn(t, puppet.AcceptUnix(t, ln), old)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.InstanceAttested || !strings.Contains(c.Instance, "/"+strconv.Itoa(h.Process.Pid)+"@") {
		t.Errorf("instance %q, attested %v: want a composed key that is not attested", c.Instance, c.InstanceAttested)
	}
	withoutPidfd := &Credentials{}
	if _, err := withoutPidfd.process.openOld(c.PID, c.UID); err != nil {
		t.Fatal(err)
	}
	unix.Close(withoutPidfd.process.pidfd.fd()) // before 5.3 there is only the directory
	withoutPidfd.process.pidfd = 0
	defer withoutPidfd.Close()
	if !c.Alive() || !withoutPidfd.Alive() {
		t.Error("a running process is called dead")
	}
	h.End()
	puppet.Eventually(t, "the exit shows by pidfd", func() bool { return !c.Alive() })
	puppet.Eventually(t, "the exit shows by directory", func() bool { return !withoutPidfd.Alive() })
}

func TestOnAnOlderKernelADeadPidOrAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	h := puppet.Start(t, nil, "hold")
	var p process
	if _, err := p.openOld(int32(h.Process.Pid), uint32(os.Geteuid())+1); !errors.Is(err, ErrGone) {
		t.Errorf("another uid than at connect: %v, want ErrGone", err)
	}
	h.End()
	if _, err := p.openOld(int32(h.Process.Pid), uint32(os.Geteuid())); !errors.Is(err, ErrGone) {
		t.Errorf("a dead pid: %v, want ErrGone", err)
	}
}

// Only ENOPROTOOPT means an older kernel. Any other error refuses the connection, because a
// fallback to the pid could pin the wrong process.
func TestNoFallbackWhenTheHandleIsRefused(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	puppet.Start(t, nil, "dial", "unix", path)
	conn := puppet.AcceptUnix(t, ln)
	for _, errno := range []unix.Errno{unix.ESRCH, unix.EINVAL, unix.ENODATA, unix.EMFILE} {
		failing := func(int) (int, error) { return -1, errno }
		if c, err := attestConn(t, conn, failing); !errors.Is(err, ErrGone) {
			t.Errorf("%v: got %+v, %v; want ErrGone", errno, c, err)
		}
	}
}

func attestConn(t *testing.T, conn *net.UnixConn, pidfd func(int) (int, error)) (c *Credentials, err error) {
	t.Helper()
	raw, rawErr := conn.SyscallConn()
	if rawErr != nil {
		t.Fatal(rawErr)
	}
	raw.Control(func(fd uintptr) { c, err = attest(int(fd), pidfd) })
	return c, err
}

func TestInstancesOfTwoProcessesDiffer(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	var got []string
	for range 2 {
		puppet.Start(t, nil, "dial", "unix", path)
		c, err := OfUnix(puppet.AcceptUnix(t, ln))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !c.InstanceAttested {
			t.Skip("this kernel has no pidfs")
		}
		got = append(got, c.Instance)
	}
	if got[0] == got[1] || got[0] == "" {
		t.Errorf("instances %q", got)
	}
}

func TestCloseEndsTheHandleOnce(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	puppet.Start(t, nil, "dial", "unix", path)
	c, err := OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { c.Alive(); c.Close(); c.Alive() })
	}
	wg.Wait()
	if c.Alive() {
		t.Error("alive after Close")
	}
	var none *Credentials
	if none.Alive() || none.Close() != nil {
		t.Error("no credentials are alive, or cannot be closed")
	}
}
