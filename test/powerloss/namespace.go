package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// insideEnv marks the second run of this program, in the namespace, and holds the path of its
// working directory.
const insideEnv = "POWERLOSS_INSIDE"

// exitStatus is the exit status of the second run, which has already printed the reason.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// enter runs this program again in a new mount namespace, whose mounts end with its last process.
// Without root it adds a user namespace, in which the program may mount.
func enter() error {
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		return fmt.Errorf("%w: no FUSE: %w", errNoFUSE, err)
	} else {
		_ = f.Close()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "dwpl")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) // in every case, even when the second run was killed
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"="+work)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: no namespace to mount in: %w", errNoFUSE, err)
	}
	go func() {
		<-stop
		_ = cmd.Process.Kill() // its children and mounts end with it
	}()
	_ = cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); code {
	case 0:
		return nil
	case statusNoFUSE:
		return fmt.Errorf("%w: FUSE may not be mounted", errNoFUSE)
	default:
		return exitStatus(code)
	}
}

// statusNoFUSE is the exit status by which the second run reports that it may not mount.
const statusNoFUSE = 77

// private makes all mounts private to this namespace and tries to mount a disk.
func private(dir string) error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return exitStatus(statusNoFUSE)
	}
	m, err := mount(newDisk(), dir)
	if err != nil {
		return exitStatus(statusNoFUSE)
	}
	return m.unmount()
}
