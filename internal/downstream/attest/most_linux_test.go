package attest

import (
	"fmt"
	"testing"

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
