package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

func TestMain(m *testing.M) {
	puppet.Main(m, puppet.Stages{"reuse": reusedPid, "reuse-before": reusedBefore, "out-of-descriptors": outOfDescriptors, "serve": serve}, nil)
}

// unixListener opens a socket that every user may connect to.
func unixListener(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	path := filepath.Join(puppet.OpenDir(t), "s")
	ln, err := (&net.ListenConfig{Control: ListenControl}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return ln.(*net.UnixListener), path
}

// serve attests one connection and prints what it found.
func serve(args []string) error {
	ln, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	os.Chmod(args[0], 0o666)
	fmt.Println("ready")
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	creds, err := OfUnix(c.(*net.UnixConn))
	out := served{NoIdentity: errors.Is(err, ErrNoIdentity)}
	if err != nil {
		out.Err = err.Error()
	} else {
		out.UID, out.PID, out.Foreign = creds.UID, creds.PID, creds.Foreign
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

type served struct {
	UID        uint32
	PID        int32
	Foreign    bool
	NoIdentity bool
	Err        string
}

// outOfDescriptors reads from one peer with almost no descriptors left.
func outOfDescriptors(args []string) error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: args[0], Net: "unix"})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	c, err := ln.AcceptUnix()
	if err != nil {
		return err
	}
	creds, err := OfUnix(c)
	if err != nil {
		return err
	}
	raw, _ := c.SyscallConn()
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	most := 0
	for fd := range 200 {
		if _, e := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); e == nil && fd != puppet.Socket {
			most = fd
		}
	}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(most) + 3, Max: 4096})
	reason := "nothing"
	_, err = Guard(c, creds, func(r string) { reason = r }).Read(make([]byte, 8))
	if err == nil {
		return errors.New("the read was allowed")
	}
	fmt.Println("broke", reason)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
