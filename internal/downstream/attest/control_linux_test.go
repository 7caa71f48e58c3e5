package attest

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestControlDataIdentifiesTheWriter(t *testing.T) {
	t.Parallel()
	me := &Credentials{PID: int32(os.Getpid()), UID: uint32(os.Getuid())}
	own := unix.UnixCredentials(&unix.Ucred{Pid: me.PID, Uid: me.UID})
	other := unix.UnixCredentials(&unix.Ucred{Pid: me.PID + 1, Uid: me.UID})
	user := unix.UnixCredentials(&unix.Ucred{Pid: me.PID, Uid: me.UID + 1})
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	passed := unix.UnixRights(pipe[1])
	for _, tc := range []struct {
		name    string
		n       int
		flags   int
		control []byte
		want    string
	}{
		{"the connector", 1, 0, own, ""},
		{"another process", 1, 0, other, BreachWriter},
		{"another user", 1, 0, user, BreachWriter},
		{"the last of several counts", 1, 0, append(bytes.Clone(own), other...), BreachWriter},
		{"no credential", 1, 0, nil, BreachUnattested},
		{"half a credential", 1, 0, own[:unix.SizeofCmsghdr+4], BreachUnattested},
		{"half a header", 1, 0, own[:6], BreachUnattested},
		{"a credential and a header without a length", 1, 0, append(bytes.Clone(own), make([]byte, unix.SizeofCmsghdr)...), BreachUnattested},
		{"cut off", 1, unix.MSG_CTRUNC, own, BreachTruncated},
		{"the end", 0, 0, nil, ""},
		{"the end, with the overflow uid", 0, 0, unix.UnixCredentials(&unix.Ucred{Uid: 65534}), ""},
		{"descriptors", 1, 0, append(bytes.Clone(own), passed...), BreachDescriptors},
		{"descriptors and the end", 0, 0, unix.UnixRights(-1), BreachDescriptors},
	} {
		if got := me.judge(tc.n, tc.flags, tc.control); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	// The passed descriptor was closed: the pipe is at its end.
	if n, err := unix.Read(pipe[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
}

func TestAGuardedReadAllocatesNothing(t *testing.T) {
	ln, _ := unixListener(t)
	c, client := ownConnection(t, ln)
	b := make([]byte, 64)
	if n := testing.AllocsPerRun(200, func() {
		client.Write(b[:8])
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
