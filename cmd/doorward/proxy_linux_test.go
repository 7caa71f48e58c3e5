package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// runProxy is `fakemcp proxy NAME NETWORK ADDR`: another process that makes the
// connections, so that a script can speak as several processes, or users, at once. It
// forwards each connection to the abstract socket NAME over a connection of its own, and prints
// "hung up" when the end of the one has ended the other. On
// USR1 it executes itself: to the kernel, the same process with another program.
func runProxy(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: fakemcp proxy NAME NETWORK ADDR")
	}
	l, err := net.Listen("unix", "@"+args[0])
	if err != nil {
		return err
	}
	fmt.Println("proxy", os.Getpid())
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGUSR1)
	go func() {
		<-again
		err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
		fmt.Println("exec:", err)
		os.Exit(1)
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go handOn(c, args[1], args[2])
	}
}

func handOn(c net.Conn, network, addr string) {
	defer c.Close()
	up, err := net.Dial(network, addr)
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // a broken connection is an ended one
			way[1].(interface{ CloseWrite() error }).CloseWrite()
			if way[0] == up { // there is no further answer
				c.Close()
			} else {
				fmt.Println("hung up")
			}
		})
	}
	both.Wait()
}

// asUser makes cmd run as another user. The program is the test's own, which
// the other user may not be able to find by its path.
func asUser(ts *testscript.TestScript, cmd *exec.Cmd, uid string) {
	n, err := strconv.ParseUint(uid, 10, 32)
	ts.Check(err)
	cmd.Path, cmd.Dir = "/proc/self/exe", "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(n), Gid: uint32(n)}}
}
