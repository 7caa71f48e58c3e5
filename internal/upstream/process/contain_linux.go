package process

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waitAll makes wait4 return all children, including those that clone gave no SIGCHLD.
const waitAll = unix.WALL

// contain prepares the supervisor: it becomes the parent of orphaned descendants, and no descriptor above 2 reaches
// the server, neither the control pipe nor one that the daemon itself was started with.
func contain() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a subreaper: %w", err)
	}
	nameSelf("doorward-child")
	return closeOnExecFrom(controlFD)
}

// nameSelf sets the name that process lists show, which would otherwise be "exe".
func nameSelf(name string) {
	fd, err := unix.Open("/proc/self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(name))
	_ = unix.Close(fd)
}

func closeOnExecFrom(first int) error {
	if unix.CloseRange(uint(first), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// Kernels before 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("listing open descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

func serverAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// disarm ignores every signal that has no use here, including those that the Go runtime handles or leaves at their
// default, and those that a fault raises: the kernel still ends a process that really faults. It is called after the
// server's start, because an ignored signal stays ignored across exec. It does not use os/signal, which hands over
// every single signal to a thread and back, and took longer than the rest of the start. A server that signals its supervisor in the moment before
// that call ends the supervisor, and so itself.
func disarm() {
	const sigIgn, last = 1, 64
	action := [4]uintptr{sigIgn} // handler, flags, restorer, mask
	for sig := range uintptr(last + 1) {
		switch syscall.Signal(sig) {
		case unix.SIGCHLD, unix.SIGTERM, unix.SIGURG: // the runtime preempts goroutines with SIGURG
			continue
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}

// killTree kills the direct children, which include the server.
func killTree(int) {
	for _, pid := range children(os.Getpid()) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// killChildren kills the direct children of a process that are alive, and reports whether there were any.
func killChildren(parent int) (found bool) {
	for _, pid := range children(parent) {
		if state, ppid := stat(pid); ppid == parent && state != 'Z' {
			found = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return found
}

// CanContain reports whether servers can be contained on this system.
const CanContain = true
