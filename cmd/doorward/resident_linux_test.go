package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A resident is a process that was started before the agents of the test and is not below
// the test, as a person's login is: it runs commands that the test asks for. It ends with
// the test, whose end of a pipe it reads.

// residentJob is one command; its standard output, standard error and the file for its
// exit status travel beside it.
type residentJob struct {
	Dir       string
	Env, Argv []string
}

type resident struct {
	path string
	life *os.File // closed with the test
	err  error
}

// theResident starts the resident of this test program. It has to be called before any
// agent starts.
var theResident = sync.OnceValue(startResident)

func startResident() *resident {
	dir, err := os.MkdirTemp("", "resident")
	if err != nil {
		return &resident{err: err}
	}
	r := &resident{path: filepath.Join(dir, "s")}
	in, life, err := os.Pipe()
	if err != nil {
		return &resident{err: err}
	}
	r.life = life
	self, err := os.Executable()
	if err != nil {
		return &resident{err: err}
	}
	cmd := exec.Command(self, r.path)
	cmd.Args[0] = "resident"
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r.err = cmd.Run() // it ends once the resident listens
	in.Close()
	return r
}

func (r *resident) run(job residentJob, files []*os.File) error {
	if r.err != nil {
		return r.err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := json.Marshal(job)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if _, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c) // until it is done
	return err
}

// residentMain leaves its parent, which ends once the socket is there, and serves.
func residentMain() {
	if err := reside(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "resident:", err)
		os.Exit(1)
	}
}

func reside(path string) error {
	if os.Getenv(adriftFrom) == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		again := exec.Command(self, path)
		again.Args[0] = "resident"
		again.Env = append(os.Environ(), adriftFrom+"=1")
		again.Stdin, again.Stderr = os.Stdin, os.Stderr
		if err := again.Start(); err != nil {
			return err
		}
		if !poll(30*time.Second, func() bool { _, err := os.Stat(path); return err == nil }) {
			return errors.New("it does not listen")
		}
		return nil
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		os.RemoveAll(filepath.Dir(path))
		os.Exit(0)
	}()
	for {
		c, err := ln.AcceptUnix()
		if err != nil {
			return err
		}
		go residentServe(c)
	}
}

func residentServe(c *net.UnixConn) {
	defer c.Close()
	b, oob := make([]byte, 64<<10), make([]byte, 256)
	n, on, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return
	}
	controls, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil || len(controls) != 1 {
		return
	}
	fds, err := unix.ParseUnixRights(&controls[0])
	var job residentJob
	if err != nil || len(fds) != 3 || json.Unmarshal(b[:n], &job) != nil {
		return
	}
	var files []*os.File
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "passed")
		defer f.Close()
		files = append(files, f)
	}
	cmd := exec.Command(job.Argv[0], job.Argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = job.Dir, job.Env, files[0], files[1]
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(files[1], "resident:", err)
		return
	}
	fmt.Fprint(files[2], cmd.ProcessState.ExitCode())
}
