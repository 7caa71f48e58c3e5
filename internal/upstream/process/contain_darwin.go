package process

import (
	"errors"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

const waitAll = 0

// contain keeps the control pipe from the server. macOS has no subreaper: see the package comment for what that means.
func contain() error {
	unix.CloseOnExec(controlFD)
	return nil
}

func serverAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// disarm ignores what would end the supervisor. It comes after the server's start, because an ignored signal stays ignored
// across exec.
func disarm() {
	signal.Ignore(unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE)
}

// killTree kills the server's process group. Its number is not given to another process while the group has members; when
// it has none, it was free for no longer than the server has been reaped, which is the moment before.
func killTree(group int) { _ = unix.Kill(-group, unix.SIGKILL) }

// killChildren knows no children here: a supervisor that does not act is killed alone.
func killChildren(int) bool { return false }

// errNoSandbox: what shuts a server in is made of Linux's parts.
var errNoSandbox = errors.New("this system has no sandbox for servers")

func startInner(call) (int, error) { return 0, errNoSandbox }

func inner(call) int { return refuse(exitSupervisor, errNoSandbox) }

// CanContain: servers can be contained on this system.
const CanContain = false

// cgroups, cgroup and sealedImage are Linux's.
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
