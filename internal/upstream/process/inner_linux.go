package process

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// startInner starts the second stage, which becomes process 1 of the server's own namespaces and starts the server there.
//
// The plan goes the way of the pipe by which the stage sees that we live: what stands in its arguments the server can read.
//
// It is another exec because what the daemon has done to itself stands in the way of doing it there: an undumpable
// process cannot map ids for a child of its own. The stage ends with this process: by its parent-death signal, and by
// that pipe for the moment before the signal is set.
func startInner(c call) (int, error) {
	var alive [2]int
	if err := unix.Pipe2(alive[:], unix.O_CLOEXEC); err != nil {
		return 0, os.NewSyscallError("pipe", err)
	}
	defer unix.Close(alive[0]) // the other end stays open for as long as this process lives
	files := []uintptr{0, 1, 2, uintptr(alive[0]), reportFD}
	argv := append([]string{"doorward", "child-supervisor", innerWord, "--"}, c.argv...)
	pid, err := 0, error(nil)
	for _, p := range attempts(*c.plan) {
		attr := &syscall.ProcAttr{Env: os.Environ(), Files: files, Sys: innerAttr(p)}
		if pid, err = syscall.ForkExec("/proc/self/exe", argv, attr); err == nil {
			_, err = unix.Write(alive[1], append([]byte(p.String()), 0))
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("making namespaces: %w%s", err, hint())
		tell(note{Error: err.Error()})
		return 0, err
	}
	return pid, unix.Close(reportFD)
}

// attempts are the plan with a user namespace, and for root, who can do without, one without.
func attempts(p plan) []plan {
	p.UserNS = true
	all := []plan{p}
	if os.Geteuid() == 0 {
		p.UserNS = false
		all = append(all, p)
	}
	return all
}

func innerAttr(p plan) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if p.Network == NetworkNone {
		a.Cloneflags |= unix.CLONE_NEWNET
	}
	if p.UserNS {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		// Without these, exec would leave a user who is not root nothing to build with.
		a.AmbientCaps = setupCaps
	}
	return a
}

// hint says what usually is the matter where namespaces cannot be had.
func hint() string {
	switch {
	case sysctl("user/max_user_namespaces") == "0":
		return " (user.max_user_namespaces is 0)"
	case sysctl("kernel/unprivileged_userns_clone") == "0":
		return " (kernel.unprivileged_userns_clone is 0)"
	case sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return " (kernel.apparmor_restrict_unprivileged_userns is 1: AppArmor has to allow doorward `userns`)"
	case filtered():
		return " (this process runs under a seccomp filter, as in a container: its runtime has to allow user namespaces)"
	}
	return ""
}

func sysctl(name string) string {
	b, err := readProc("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// filtered tells whether somebody has set a seccomp filter before us.
func filtered() bool {
	status, err := readProc("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2\n")
}
