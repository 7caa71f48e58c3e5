package peer

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxSocketPath is the longest path, in bytes, that a socket can be bound to.
const MaxSocketPath = 107

// firstPassed is the first descriptor that a service manager passes.
const firstPassed = 3

// PassedSockets takes the listening sockets that a service manager passed to this process
// (sd_listen_fds(3)). The caller owns them, and no child inherits them. Later calls
// return none.
func PassedSockets() []*os.File {
	pid, n := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	count, err := strconv.Atoi(n)
	if err != nil || pid != strconv.Itoa(os.Getpid()) {
		return nil
	}
	var all []*os.File
	for fd := firstPassed; fd < firstPassed+count; fd++ {
		unix.CloseOnExec(fd)
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 1 {
			all = append(all, os.NewFile(uintptr(fd), "passed socket "+strconv.Itoa(fd)))
		}
	}
	return all
}

// ListenerPID returns the pid of the process that made the Unix socket listen, which
// clients see as their peer. 0: it is in a pid namespace that is not visible here.
func ListenerPID(c syscall.RawConn) (int, error) {
	var who *unix.Ucred
	var inner error
	err := c.Control(func(fd uintptr) { who, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = inner
	}
	if err != nil {
		return 0, fmt.Errorf("finding the process that made the socket: %w", err)
	}
	return int(who.Pid), nil
}
