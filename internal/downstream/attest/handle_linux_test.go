package attest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// TestWithoutAHandleAProcessIsAliveUntilClose: a peer outside of this pid namespace, on a
// kernel without SO_PEERPIDFD.
func TestWithoutAHandleAProcessIsAliveUntilClose(t *testing.T) {
	t.Parallel()
	c := &Credentials{}
	if !c.Alive() {
		t.Error("it has ended before Close")
	}
	if err := c.Close(); err != nil || c.Alive() {
		t.Errorf("after Close: %v, alive %v", err, c.Alive())
	}
}

// TestCloseReleasesWhatWasOpened: the pidfd and the directory of the process.
func TestCloseReleasesWhatWasOpened(t *testing.T) {
	t.Parallel()
	var p process
	start, err := p.openOld(int32(os.Getpid()), uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := startTime(unix.AT_FDCWD, "/proc/self/stat"); start != want || err != nil {
		t.Errorf("start %d, want %d, %v", start, want, err)
	}
	if _, err := unix.FcntlInt(uintptr(p.pidfd.fd()), unix.F_GETFD, 0); !p.pidfd.held() || err != nil {
		t.Errorf("the pidfd: held %v, %v", p.pidfd.held(), err)
	}
	dir := p.dir
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if err := dir.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the directory was open: %v", err)
	}
}

// TestHandleIsOpenWhileItIsUsed: Handle gives the pidfd of a live process to use, and Close
// reports the end of the use. It gives none without a handle and after Close.
func TestHandleIsOpenWhileItIsUsed(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	puppet.Start(t, nil, "dial", "unix", path)
	c, err := OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	used, closed := 0, 0
	use := func(pidfd int) error {
		used++
		if Exited(pidfd) {
			t.Error("the process of the handle has exited")
		}
		return nil
	}
	end := func() { closed++ }
	if held, err := c.Handle(use, end); !held || err != nil || used != 1 || closed != 0 {
		t.Fatalf("held %v, %v, used %d times, closed %d times", held, err, used, closed)
	}
	refused := errors.New("refused")
	if held, err := c.Handle(func(int) error { return refused }, end); held || err != refused {
		t.Errorf("a failed use: held %v, %v", held, err)
	}
	if err := c.Close(); err != nil || closed != 1 {
		t.Errorf("Close: %v, closed %d times, want once", err, closed)
	}
	for name, without := range map[string]*Credentials{"after Close": c, "without a handle": {}} {
		if held, err := without.Handle(use, end); held || err != nil || used != 1 {
			t.Errorf("%s: held %v, %v, used %d times", name, held, err, used)
		}
	}
}

// TestManyGroupsAreReadWhole: more than fit the first buffer.
func TestManyGroupsAreReadWhole(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	for _, n := range []int{64, 65, 300} {
		groups := make([]uint32, n)
		for i := range groups {
			groups[i] = uint32(1000 + i)
		}
		ln, path := unixListener(t)
		puppet.Start(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 33, Gid: 33, Groups: groups}}, "dial", "unix", path)
		c, err := OfUnix(puppet.AcceptUnix(t, ln))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !c.GroupsKnown || len(c.Groups) != n || c.Groups[0] != 1000 || c.Groups[n-1] != uint32(1000+n-1) {
			t.Errorf("%d groups: known %v, %d: %v", n, c.GroupsKnown, len(c.Groups), c.Groups)
		}
	}
}

// TestADaemonWithTheOverflowUID: it serves its own uid where every uid is mapped, so that no
// other uid reads as it. In a user namespace that maps none it serves no uid.
func TestADaemonWithTheOverflowUID(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	for name, c := range map[string]struct {
		daemon *syscall.SysProcAttr
		served bool
	}{
		"all mapped":  {puppet.AsUID(overflowUID()), true},
		"none mapped": {&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}, false},
	} {
		path := filepath.Join(puppet.OpenDir(t), "s")
		h := puppet.Start(t, c.daemon, "serve", path)
		h.Line(t, "ready")
		puppet.Start(t, puppet.AsUID(overflowUID()), "dial", "unix", path)
		if got := servedBy(t, h); got.NoIdentity == c.served || c.served && got.UID != overflowUID() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
