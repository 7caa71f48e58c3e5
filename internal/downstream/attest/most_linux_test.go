package attest

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// TestTheMostControlDataFits: the buffer holds a credential, a pidfd and the largest number of
// descriptors, none of which is cut off.
func TestTheMostControlDataFits(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	passRights(t, ln)
	p := puppet.New(t, nil, path)
	c := puppet.AcceptUnix(t, ln)
	g := guardOf(t, c)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSPIDFD, 1) })
	if err != nil {
		t.Skip("the kernel sends no pidfd: ", err)
	}
	p.Tell(t, "pass", fmt.Sprint(maxPassed))
	g.mustBreak(t, BreachDescriptors)
	if got := p.Line(t, ""); got != "done closed true" {
		t.Errorf("the descriptors that it passed: %s", got)
	}
}

// TestControlReachesTheDescriptorOfAGuardedConnection: and of no other connection, and not
// after Close.
func TestControlReachesTheDescriptorOfAGuardedConnection(t *testing.T) {
	t.Parallel()
	ln, _ := unixListener(t)
	c, client := ownConnection(t, ln)
	called := 0
	f := func(fd uintptr) {
		called++
		if _, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			t.Errorf("the descriptor %d: %v", fd, err)
		}
	}
	if !Control(c, f) || called != 1 {
		t.Errorf("a guarded connection: called %d times", called)
	}
	if Control(client, f) || called != 1 {
		t.Errorf("another connection: called %d times", called)
	}
	c.Close()
	if Control(c, f) || called != 1 {
		t.Errorf("a closed connection: called %d times", called)
	}
	if Control(&guard{}, f) {
		t.Error("a guard without a descriptor has been used")
	}
}

// TestOnlyDescriptorsOfControlDataAreClosed: a pidfd that the kernel sent is closed and is no
// breach, and the numbers in other control data are no descriptors.
func TestOnlyDescriptorsOfControlDataAreClosed(t *testing.T) {
	t.Parallel()
	me := &Credentials{PID: 7, UID: 8}
	own := unix.UnixCredentials(&unix.Ucred{Pid: 7, Uid: 8})
	for name, c := range map[string]struct {
		level, kind int32
		closed      bool
	}{
		"a pidfd":       {unix.SOL_SOCKET, unix.SCM_PIDFD, true},
		"a label":       {unix.SOL_SOCKET, unix.SCM_SECURITY, false},
		"another level": {unix.SOL_IP, unix.SCM_RIGHTS, false},
	} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		data := unix.UnixRights(pipe[1])
		h := (*unix.Cmsghdr)(unsafe.Pointer(&data[0]))
		h.Level, h.Type = c.level, c.kind
		if breach := me.judge(1, 0, append(bytes.Clone(own), data...)); breach != "" {
			t.Errorf("%s: %s", name, breach)
		}
		_, err := unix.Read(pipe[0], make([]byte, 1)) // it is at its end if the other side is closed
		if err == nil != c.closed {
			t.Errorf("%s: closed %v, want %v", name, err == nil, c.closed)
		}
		if err != nil {
			unix.Close(pipe[1])
		}
		unix.Close(pipe[0])
	}
}
