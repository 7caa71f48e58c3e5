package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// setupCaps are the capabilities, only in the server's own user namespace, that building the sandbox requires. The
// server gets none of them.
var setupCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE,
	unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH}

// dropPrivileges removes from this thread, and so from the processes that it starts, every capability and every way
// to get one.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: a capability that this kernel does not know.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("dropping ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return nil
}

// newKeyring replaces the daemon's session keyring by a new one; a child would otherwise possess the daemon's.
func newKeyring() error {
	// With no name: the library's own call passes an empty one, which the kernel refuses.
	_, _, err := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if err != 0 && err != unix.ENOSYS {
		return err
	}
	return nil
}

// limitDescriptors disables core files and limits the open descriptors of each process. 0 keeps the present limit.
func limitDescriptors(files int) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limiting cores: %w", err)
	}
	if files <= 0 {
		return nil
	}
	return lowerLimit(unix.RLIMIT_NOFILE, uint64(files))
}

// limitProcesses limits the processes and threads of this user in this user namespace, not counting those of this
// process. Kernels before 5.14 count over all namespaces.
func limitProcesses(most int) error {
	own, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	return lowerLimit(unix.RLIMIT_NPROC, uint64(most+len(own)))
}

// lowerLimit sets a limit, but never above the present maximum.
func lowerLimit(resource int, to uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	to = min(to, now.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: to, Max: to})
}

// countsPerNamespace reports whether RLIMIT_NPROC counts per user namespace, as since Linux 5.14.
func countsPerNamespace() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 14
}

// preferAsVictim makes the kernel prefer a server to the daemon when it ends a process for lack of memory. A failure
// is ignored.
func preferAsVictim() {
	_ = writeProc("/proc/self/oom_score_adj", "500")
}

// writeProc writes to a file of /proc in one system call.
func writeProc(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

// raiseLoopback switches on lo in the network namespace of this process.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return err
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
