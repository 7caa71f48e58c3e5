package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// startInner starts the second stage, which becomes process 1 of the server's own namespaces and starts the server there.
//
// The plan is sent over the pipe by which the stage sees that this process lives, because the server could read it in
// the stage's arguments.
//
// The stage is a new exec because the daemon's state would prevent the setup: an undumpable process cannot map ids
// for a child of its own. The stage ends with this process: by its parent-death signal, and by that pipe before the
// signal is set.
func startInner(c call) (int, error) {
	var alive [2]int
	if err := unix.Pipe2(alive[:], unix.O_CLOEXEC); err != nil {
		return 0, os.NewSyscallError("pipe", err)
	}
	files := []uintptr{0, 1, 2, uintptr(alive[0]), reportFD}
	argv := append([]string{"doorward", subcommand, innerWord, "--"}, c.argv...)
	pid, err := 0, error(nil)
	for _, p := range attempts(*c.plan) {
		attr := &syscall.ProcAttr{Env: os.Environ(), Files: files, Sys: innerAttr(p)}
		if pid, err = syscall.ForkExec("/proc/self/exe", argv, attr); err == nil {
			_ = unix.Close(alive[0]) // the other end stays open as long as this process lives
			err = writeAll(alive[1], append([]byte(p.String()), 0))
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

// writeAll writes to a blocking descriptor. A signal can cut a single write short.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("sending the plan of the sandbox", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

// attempts returns the plan with a user namespace, and for root, which can do without, another one without it.
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
		// Without these, a user that is not root would have no capability left after exec to build the sandbox with.
		a.AmbientCaps = setupCaps
	}
	return a
}

// hint names the usual cause when namespaces are not available.
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

// filtered reports whether this process already runs under a seccomp filter.
func filtered() bool {
	status, err := readProc("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2\n")
}

// inner runs the second stage and returns its exit status. See [supervise].
func inner(c call) int {
	nameSelf("doorward-jail")
	p, err := readPlan()
	if err != nil {
		return refuse(exitSupervisor, err)
	}
	j := &jail{plan: p, argv: c.argv}
	j.dir, _ = unix.Getwd() // empty if it cannot be read
	j.folder = here()
	if err := closeOnExecFrom(controlFD); err != nil {
		return j.refuse(err)
	}
	s := newSupervisor()
	s.alone = true
	if err := j.build(); err != nil {
		return j.refuse(err)
	}
	go s.watchControl()
	provide(spareThreads)
	if err := j.confine(); err != nil {
		return j.refuse(err)
	}
	if err := j.complete(); err != nil {
		return j.refuse(err)
	}
	tell(note{Measures: j.measures})
	if j.plan.Probe {
		return 0
	}
	if err := s.exec(c.argv, &syscall.SysProcAttr{Setsid: true}); err != nil {
		return cannotStart(c.argv[0], err)
	}
	go j.watch(s.ended)
	return s.run()
}

func (j *jail) refuse(err error) int {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w%s", err, hint())
	}
	tell(note{Error: err.Error(), Astray: errors.Is(err, errLeadsOut)})
	return refuse(exitSupervisor, err)
}

// complete returns an error in strict mode if a measure is not enforced. Limits may be partial.
func (j *jail) complete() error {
	if j.plan.Mode != Strict {
		return nil
	}
	var missing []string
	for _, m := range j.measures {
		if m.State != Enforced && !limitMeasures[m.Name] {
			missing = append(missing, fmt.Sprintf("%s %s (%s)", m.Name, m.State, m.Detail))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("strict is not fully available on this system: %s", strings.Join(missing, "; "))
	}
	return nil
}

// confine removes from this thread, and thereby from the server, the privileges that the server does not need. The
// order is fixed, because later steps need what earlier ones keep.
func (j *jail) confine() error {
	preferAsVictim()
	j.limit()
	j.try("own keyring", "", newKeyring())
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding the first process: %w", err)
	}
	rules, err := j.landlock()
	if err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	j.note("no new privileges", Enforced, "")
	j.note("no capabilities", Enforced, "")
	if err := rules.enforce(); err != nil {
		return err
	}
	return j.filter()
}
