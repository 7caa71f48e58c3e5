package process

import (
	"errors"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

const waitAll = 0

// contain keeps the control pipe from the server. macOS has no subreaper: see the package comment for the
// consequences.
func contain() error {
	unix.CloseOnExec(controlFD)
	return nil
}

func serverAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// disarm ignores the signals that would end the supervisor. It is called after the server's start, because an ignored
// signal stays ignored across exec.
func disarm() {
	signal.Ignore(unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE)
}

// killTree kills the server's process group. Its number is not given to another process while the group has members.
// If it has none, the number has been free only since the server was reaped, a moment before.
func killTree(group int) { _ = unix.Kill(-group, unix.SIGKILL) }

// killChildren finds no children on this system: a supervisor that does not act is killed alone.
func killChildren(int) bool { return false }

// errNoSandbox: the sandbox is built from parts of Linux.
var errNoSandbox = errors.New("this system has no sandbox for servers")

func startInner(call) (int, error) { return 0, errNoSandbox }

func inner(call) int { return refuse(exitSupervisor, errNoSandbox) }

// CanContain reports whether servers can be contained on this system.
const CanContain = false

// cgroups, cgroup and sealedImage exist on Linux only.
type (
	cgroups     struct{}
	cgroup      struct{}
	sealedImage struct{}
)

func (r *Runner) startSupervisor(argv []string, attr *syscall.ProcAttr) (exitWatch, error) {
	return start(r.o.Self, argv, attr)
}

func openCgroups() *cgroups { return nil }

func (*cgroups) make(Limits) *cgroup           { return nil }
func (*cgroup) place(how *syscall.SysProcAttr) {}
func (*cgroup) close()                         {}
func (*cgroup) exceeded() string               { return "" }
func (*cgroup) remove()                        {}
