package peer

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// stages are the helpers that run in a process of their own.
var stages = map[string]func(args []string) error{
	"reuse-middle":            reusedMiddle,
	"fuse":                    fuse,
	"subreaper":               subreaper,
	"observe":                 observeAll,
	"ask-without-descriptors": askWithoutDescriptors,
	"swallow":                 swallow,
	"headless":                headless,
	"reuse-gone":              reusedGone,
	"hidden":                  hiddenGone,
	"foreign-gone":            foreignGone,
	"observe-protected": func(args []string) error {
		if err := ProtectSelf(); err != nil {
			return err
		}
		return observeAll(args)
	},
	"own-proc": func([]string) error {
		e := NewObserver(Limits{}).Observe(context.Background(), &attest.Credentials{PID: 1})
		fmt.Printf("own %v, of process 1: %+v\n", ownProc(), e)
		return nil
	},
}

// observeAll prints what it observes of each peer.
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
		creds, err := attest.OfUnix(c)
		if err != nil {
			return err
		}
		e := o.Observe(context.Background(), creds)
		fmt.Println("exe", e.Exe != "", "digest", e.SHA256 != "", "image", e.Image != nil,
			"start", e.Start != "", "cgroup", e.Cgroup != "", "parent", e.ParentPID)
	}
}
