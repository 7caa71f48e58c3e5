package peer

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// The helpers below hold a loopback socket in different ways. Each prints the pid of the
// holder, 0 for none, and waits until its input ends.

func init() {
	stages["holder"] = func(args []string) error { return holdSocket(args[0], args[1]) }
	stages["hide"] = func([]string) error {
		if err := ProtectSelf(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	stages["full"] = func(args []string) error { return full(args[0]) }
	stages["dial-many"] = func(args []string) error { return dialMany(args[0], args[1]) }
	stages["dial-again"] = func(args []string) error { return dialAgain(args[0]) }
}

type holderHelper struct {
	*puppet.Helper
	holder int32
}

// hold has a helper connect and hold the socket as how says, and accepts the connection.
func hold(t testing.TB, attr *syscall.SysProcAttr, how string) (h holderHelper, local, remote netip.AddrPort) {
	t.Helper()
	ln := tcpListener(t, "127.0.0.1:0")
	h.Helper = puppet.Start(t, attr, "holder", ln.Addr().String(), how)
	said := h.Line(t, "")
	if said == "cannot" {
		t.Skipf("%s: this system does not let a process do that", how)
	}
	if _, err := fmt.Sscanf(said, "held %d", &h.holder); err != nil {
		t.Fatalf("helper said %q", said)
	}
	local, remote = accepted(t, ln)
	return h, local, remote
}

// Tell has the helper go on, and waits until it has.
func (h holderHelper) Tell(t testing.TB) {
	t.Helper()
	h.In.Write([]byte("x"))
	h.Line(t, "told")
}

func holdSocket(addr, how string) error {
	s, err := connected(addr)
	if err != nil {
		return err
	}
	self := os.Getpid()
	switch how {
	case "plain":
		return waitHolding(self)
	case "half closed":
		if err := unix.Shutdown(s, unix.SHUT_WR); err != nil {
			return err
		}
		return waitHolding(self)
	case "high descriptor":
		if err := unix.Dup3(s, 200, unix.O_CLOEXEC); err != nil {
			return err
		}
		unix.Close(s)
		return waitHolding(self)
	case "many descriptors":
		for range 500 {
			if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return err
			}
		}
		high, err := unix.FcntlInt(uintptr(s), unix.F_DUPFD_CLOEXEC, 600)
		if err != nil {
			return err
		}
		unix.Close(s)
		_ = high
		return waitHolding(self)
	case "duplicate":
		if _, err := unix.Dup(s); err != nil {
			return err
		}
		unix.Close(s)
		return waitHolding(self)
	case "inherited over exec":
		if _, err := unix.FcntlInt(uintptr(s), unix.F_SETFD, 0); err != nil {
			return err
		}
		fmt.Println("held", self)
		return unix.Exec("/proc/self/exe", []string{"hold"}, []string{puppet.Env + "=hold"})
	case "in a grandchild":
		pid, err := heir(s, nil)
		if err != nil {
			return err
		}
		unix.Close(s)
		return waitHolding(pid)
	case "inherited by children":
		if err := inherited(s); err != nil {
			return err
		}
		return waitHolding(self)
	case "held by another user":
		pid, err := heir(s, puppet.AsUID(12345))
		if err != nil {
			return err
		}
		unix.Close(s)
		return waitHolding(pid)
	case "held by another user who hides":
		pid, err := heir(s, puppet.AsUID(12345), "hide")
		if err != nil {
			return err
		}
		unix.Close(s)
		for st := (unix.Stat_t{Uid: 1}); st.Uid != 0; { // its files in /proc are root's once it hides
			if err := unix.Stat("/proc/"+strconv.Itoa(pid)+"/fd", &st); err != nil {
				return err
			}
			runtime.Gosched()
		}
		return waitHolding(pid)
	case "in flight to itself":
		if _, err := fly(s); err != nil {
			return err
		}
		return waitHolding(0)
	case "in flight in flight":
		pair, err := fly(s)
		if err != nil {
			return err
		}
		if _, err := fly(pair[0], pair[1]); err != nil {
			return err
		}
		return waitHolding(0)
	case "in flight to another":
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if _, err := heir(pair[1], nil); err != nil {
			return err
		}
		unix.Close(pair[1])
		if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(s), nil, 0); err != nil {
			return err
		}
		unix.Close(s)
		return waitHolding(0)
	case "left by its process":
		pair, err := fly(s)
		if err != nil {
			return err
		}
		if _, err := heir(pair[1], nil); err != nil {
			return err
		}
		fmt.Println("held 0")
		return nil
	case "io_uring":
		if err := register(s); err != nil {
			fmt.Println("cannot")
			return nil
		}
		unix.Close(s)
		return waitHolding(0)
	case "own table of a thread":
		return threadHolds(s)
	case "lets go when told":
		fmt.Println("held", self)
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return err
		}
		if _, err := fly(s); err != nil {
			return err
		}
		fmt.Println("told")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	return fmt.Errorf("no such way: %s", how)
}

// connected returns a connected socket that the Go runtime does not know or duplicate.
func connected(addr string) (int, error) {
	to := netip.MustParseAddrPort(addr)
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return s, unix.Connect(s, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
}

func waitHolding(pid int) error {
	fmt.Println("held", pid)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// heir starts a process that has the descriptor and does not use it.
func heir(fd int, attr *syscall.SysProcAttr, mode ...string) (pid int, err error) {
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(copied), "handed on")
	defer f.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{puppet.Env + "=" + append(mode, "hold")[0]}
	cmd.Stdin, cmd.ExtraFiles, cmd.SysProcAttr = os.Stdin, []*os.File{f}, attr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// inherited starts two processes that have the descriptor at the same number, as each process
// has between its fork and its exec.
func inherited(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		return err
	}
	for range 2 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env, cmd.Stdin = []string{puppet.Env + "=hold"}, os.Stdin
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	return nil
}

// fly puts descriptors in flight between the two ends of a pair, and closes
// them.
func fly(fds ...int) (pair [2]int, err error) {
	if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return pair, err
	}
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fds...), nil, 0); err != nil {
		return pair, err
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return pair, nil
}

// register has io_uring hold a descriptor (IORING_REGISTER_FILES).
func register(fd int) error {
	var params [120]byte // struct io_uring_params
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return errno
	}
	fds := [1]int32{int32(fd)}
	if _, _, errno = unix.Syscall6(unix.SYS_IO_URING_REGISTER, ring, 2, uintptr(unsafe.Pointer(&fds)), 1, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// threadHolds leaves the descriptor in the table of one thread only.
func threadHolds(s int) error {
	errLeader := errors.New("the first thread, whose table is the process's")
	for err := errLeader; err != nil; {
		alone := make(chan error)
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == unix.Getpid() {
				alone <- errLeader
			} else {
				alone <- unix.Unshare(unix.CLONE_FILES)
			}
			select {} // the thread keeps its table
		}()
		if err = <-alone; err != nil && err != errLeader {
			return err
		}
	}
	unix.Close(s)
	return waitHolding(0)
}

// full opens count descriptors.
func full(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n) + 64, Max: uint64(n) + 64}); err != nil {
		return err
	}
	for range n {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
	}
	fmt.Println("full")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func dialMany(addr, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for range n {
		if _, err := connected(addr); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// dialAgain connects once for each byte of its input, and closes the connection before.
func dialAgain(addr string) error {
	for before := -1; ; {
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return nil
		}
		unix.Close(before)
		s, err := connected(addr)
		if err != nil {
			return err
		}
		before = s
	}
}
