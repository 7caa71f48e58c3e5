package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// stages are the helpers that play a whole daemon.
var stages = map[string]func(args []string) error{
	"reuse":              reusedPid,
	"reuse-before":       reusedBefore,
	"reuse-middle":       reusedMiddle,
	"fuse":               fuse,
	"subreaper":          subreaper,
	"observe":            observeAll,
	"out-of-descriptors": outOfDescriptors,
	"swallow":            swallow,
	"headless":           headless,
	"reuse-gone":         reusedGone,
	"hidden":             hiddenGone,
	"foreign-gone":       foreignGone,
	"observe-protected": func(args []string) error {
		if err := ProtectSelf(); err != nil {
			return err
		}
		return observeAll(args)
	},
	"own-proc": func([]string) error {
		e := NewObserver(Limits{}).Observe(context.Background(), &Credentials{PID: 1})
		fmt.Printf("own %v, of process 1: %+v\n", ownProc(), e)
		return nil
	},
}

// outOfDescriptors reads from one peer with hardly a descriptor left.
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
		if _, e := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); e == nil && fd != puppetSocket {
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

// observeAll says what it can see of each peer.
func observeAll(args []string) error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: args[0], Net: "unix"})
	if err != nil {
		return err
	}
	os.Chmod(args[0], 0o666)
	fmt.Println("ready")
	for o := NewObserver(Limits{}); ; {
		c, err := ln.AcceptUnix()
		if err != nil {
			return err
		}
		creds, err := OfUnix(c)
		if err != nil {
			return err
		}
		e := o.Observe(context.Background(), creds)
		fmt.Println("exe", e.Exe != "", "digest", e.SHA256 != "", "image", e.Image != nil,
			"start", e.Start != "", "cgroup", e.Cgroup != "", "parent", e.ParentPID)
	}
}
