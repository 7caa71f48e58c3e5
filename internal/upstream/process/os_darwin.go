package process

import (
	"os"
	"syscall"
)

func ownBinary() (string, error) { return os.Executable() }

// closeOnExecPipe holds the fork lock, because macOS has no pipe2: a fork in between would inherit the control pipe,
// and its server would outlive the daemon.
func closeOnExecPipe() (r, w int, err error) {
	var fds [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(fds[:]); err != nil {
		return 0, 0, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return fds[0], fds[1], nil
}

func shrink(int) {}

// exitWatch waits for a supervisor; on macOS each wait holds a thread.
type exitWatch struct{ pid int }

func start(path string, argv []string, attr *syscall.ProcAttr) (exitWatch, error) {
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return exitWatch{}, os.NewSyscallError("exec "+path, err)
	}
	return exitWatch{pid: pid}, nil
}

// reapFunc runs collect while no signal can be sent to the process.
type reapFunc func(collect func() (syscall.WaitStatus, bool)) (syscall.WaitStatus, bool)

// wait blocks in wait4. Between its return and the note that the process is reaped, a signal of Process.Stop could
// reach a process that was given the same pid in that instant. That is an accepted limit, because pids are reused
// slowly.
func (w exitWatch) wait(reap reapFunc) syscall.WaitStatus {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(w.pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	status, _ = reap(func() (syscall.WaitStatus, bool) { return status, true })
	return status
}
