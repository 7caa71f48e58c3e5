package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownBinary names the running image itself, which an upgrade of the file on disk does not change.
func ownBinary() (string, error) { return "/proc/self/exe", nil }

func closeOnExecPipe() (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, err
	}
	return fds[0], fds[1], nil
}

// shrink releases the unused room of a pipe: the kernel counts pipe pages per user, and slows down all further pipes
// of a user with too many.
func shrink(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, os.Getpagesize()) }

// exitWatch waits for a supervisor without holding a thread.
type exitWatch struct {
	pid   int
	pidfd *os.File // nil on kernels before 5.3
}

func start(path string, argv []string, attr *syscall.ProcAttr) (exitWatch, error) {
	fd := -1
	attr.Sys.PidFD = &fd
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return exitWatch{}, os.NewSyscallError("exec "+path, err)
	}
	w := exitWatch{pid: pid}
	if fd >= 0 && unix.SetNonblock(fd, true) == nil {
		w.pidfd = os.NewFile(uintptr(fd), "pidfd")
	}
	return w, nil
}

// reapFunc runs collect while no signal can be sent to the process.
type reapFunc func(collect func() (syscall.WaitStatus, bool)) (syscall.WaitStatus, bool)

// wait sleeps until the process has ended, and reaps it. A pidfd becomes readable at the end of its process, so the
// poller can wait for it; a blocking wait would cost a thread for each child.
func (w exitWatch) wait(reap reapFunc) (status syscall.WaitStatus) {
	if w.pidfd != nil {
		defer w.pidfd.Close()
		ended := false
		if conn, err := w.pidfd.SyscallConn(); err == nil {
			_ = conn.Read(func(uintptr) bool {
				status, ended = reap(w.collect)
				return ended
			})
		}
		if ended {
			return status
		}
	}
	for unix.Waitid(unix.P_PID, w.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	status, _ = reap(w.collect)
	return status
}

func (w exitWatch) collect() (syscall.WaitStatus, bool) {
	var status syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(w.pid, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		// ECHILD: another part of the program has reaped it, and the status is lost.
		return status, pid == w.pid || err == syscall.ECHILD
	}
}
