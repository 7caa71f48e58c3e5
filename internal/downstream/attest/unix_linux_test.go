package attest

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

func TestAConnectionCarriesTheKernelsWordAboutItsPeer(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	h := puppet.Start(t, nil, "dial", "unix", path)
	c, err := OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.UID != uint32(os.Geteuid()) || c.GID != uint32(os.Getegid()) || int(c.PID) != h.Process.Pid {
		t.Errorf("got uid %d gid %d pid %d, the client is %d %d %d", c.UID, c.GID, c.PID, os.Geteuid(), os.Getegid(), h.Process.Pid)
	}
	ours, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if !c.GroupsKnown || len(c.Groups) != len(ours) {
		t.Errorf("groups %v (known %v), the client has %v", c.Groups, c.GroupsKnown, ours)
	}
	if c.Foreign {
		t.Error("a process of our own namespaces is called foreign")
	}
	if !c.Alive() {
		t.Error("a running process is called dead")
	}
	h.End()
	puppet.Eventually(t, "the handle shows the exit", func() bool { return !c.Alive() })
}

func TestAnotherUserIsSeenWithItsIdsAndGroups(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	ln, path := unixListener(t)
	h := puppet.Start(t, puppet.AsUID(12345), "dial", "unix", path)
	c, err := OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	slices.Sort(c.Groups)
	if c.UID != 12345 || c.GID != 12345 || !slices.Equal(c.Groups, []uint32{4, 12345}) {
		t.Errorf("got uid %d gid %d groups %v", c.UID, c.GID, c.Groups)
	}
	_ = h
}

// The ids of a peer are those at connect, also when the process changes its uid afterwards.
func TestIdsAreThoseAtConnect(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	ln, path := unixListener(t)
	puppet.Start(t, nil, "dial-then-drop", path).Line(t, "connected")
	c, err := OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.UID != 0 {
		t.Errorf("uid %d, want 0", c.UID)
	}
}

func TestTheOverflowUIDIsNoIdentity(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	ln, path := unixListener(t)
	puppet.Start(t, puppet.AsUID(overflowUID()), "dial", "unix", path)
	if c, err := OfUnix(puppet.AcceptUnix(t, ln)); !errors.Is(err, ErrNoIdentity) {
		t.Fatalf("got %+v, %v; want ErrNoIdentity", c, err)
	}
}

// A daemon in a user namespace refuses peers with an unmapped uid: all of them appear as the
// overflow uid, so that two users look alike.
func TestADaemonInAUserNamespaceRefusesUnmappedPeers(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	path := filepath.Join(puppet.OpenDir(t), "s")
	h := puppet.Start(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
	}, "serve", path)
	h.Line(t, "ready")
	puppet.Start(t, puppet.AsUID(33), "dial", "unix", path)
	if got := servedBy(t, h); !got.NoIdentity {
		t.Errorf("an unmapped peer was attested as %+v", got)
	}
}

func TestForeignPidNamespaces(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	newPID := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}

	t.Run("a peer in a container", func(t *testing.T) {
		t.Parallel()
		ln, path := unixListener(t)
		puppet.Start(t, newPID, "dial", "unix", path)
		c, err := OfUnix(puppet.AcceptUnix(t, ln))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !c.Foreign {
			t.Error("a process in another pid namespace is not called foreign")
		}
	})
	t.Run("a daemon that cannot see its peer", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(puppet.OpenDir(t), "s")
		h := puppet.Start(t, newPID, "serve", path)
		h.Line(t, "ready")
		puppet.Start(t, nil, "dial", "unix", path)
		if got := servedBy(t, h); got.Err != "" || got.PID != 0 || !got.Foreign {
			t.Errorf("got %+v, want pid 0 and foreign", got)
		}
	})
	t.Run("a peer with its own mounts", func(t *testing.T) {
		t.Parallel()
		ln, path := unixListener(t)
		puppet.Start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "dial", "unix", path)
		c, err := OfUnix(puppet.AcceptUnix(t, ln))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !c.Foreign {
			t.Error("a process in another mount namespace is not called foreign")
		}
	})
}

func servedBy(t *testing.T, h *puppet.Helper) served {
	t.Helper()
	var got served
	if err := json.Unmarshal([]byte(h.Line(t, "")), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestOnlyAConnectionHasCredentials(t *testing.T) {
	t.Parallel()
	if _, err := OfUnix(nil); err == nil {
		t.Error("nil was attested")
	}
	ln, _ := unixListener(t)
	c, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := OfUnix(c); err == nil {
		t.Error("a closed connection was attested")
	}
	gram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(puppet.OpenDir(t), "g"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer gram.Close()
	if c, err := OfUnix(gram); err == nil {
		t.Errorf("a socket without a peer was attested: %+v", c)
	}
}

func TestDescriptorsCannotBeSent(t *testing.T) {
	t.Parallel()
	ln, path := unixListener(t)
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { _, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS) })
	if err != nil {
		t.Skip("SO_PASSRIGHTS needs Linux 6.16")
	}
	h := puppet.Start(t, nil, "pass-descriptor", path)
	conn := puppet.AcceptUnix(t, ln)
	if got := h.Line(t, "sent"); !strings.HasPrefix(got, "sent true") {
		t.Errorf("%q, want EPERM", got)
	}
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf, oob := make([]byte, 8), make([]byte, 256)
	if n, _, _, _, err := conn.ReadMsgUnix(buf, oob); n != 0 && err == nil {
		t.Errorf("read %d bytes that came with a descriptor", n)
	}
}

func BenchmarkOfUnix(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	for b.Loop() {
		c, err := OfUnix(conn.(*net.UnixConn))
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
