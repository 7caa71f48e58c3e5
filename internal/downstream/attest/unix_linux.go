package attest

// Facts from SO_PEERCRED and similar options. Invariant: a fact that was read by pid is
// kept only if the process of the handle was alive afterwards.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noUID is the kernel's answer for a socket that no process connected.
const noUID = ^uint32(0)

// OfUnix returns the kernel's facts about the process that connected c. The order matters:
// the handle on the process is opened before anything is read by pid, and the last step
// checks that the process is alive.
//
// Errors: ErrGone for a process that has exited, ErrNoIdentity for the overflow uid,
// otherwise the system call that failed. The caller must Close the result.
func OfUnix(c *net.UnixConn) (*Credentials, error) {
	return ofSocket(c, func(fd int) (*Credentials, error) { return attest(fd, peerPidfd) })
}

// attest does OfUnix for a descriptor; pidfd is a parameter so that tests can run the code
// for an older kernel on a newer one.
func attest(fd int, pidfd func(int) (int, error)) (*Credentials, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("reading SO_PEERCRED: %w", err)
	}
	if err := UsableUID(cred.Uid); err != nil {
		return nil, err
	}
	c := &Credentials{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}
	if err := c.hold(fd, pidfd); err != nil {
		return nil, err
	}
	c.Groups, c.GroupsKnown = peerGroups(fd)
	c.Label = peerLabel(fd)
	c.Foreign = foreign(c.PID)
	if !c.process.alive() {
		c.process.close()
		return nil, ErrGone
	}
	return c, nil
}

// hold opens a handle on the peer's process. Only ENOPROTOOPT means that the kernel has no
// SO_PEERPIDFD. Any other error means that the peer is gone; opening the pid instead could
// open another process.
func (c *Credentials) hold(fd int, pidfd func(int) (int, error)) error {
	p, err := pidfd(fd)
	if err == nil {
		c.process.pidfd = newHandle(p)
		c.Instance, c.InstanceAttested = instanceOfPidfd(p, c.PID)
		return nil
	}
	if !errors.Is(err, unix.ENOPROTOOPT) {
		return fmt.Errorf("reading SO_PEERPIDFD: %w (%w)", ErrGone, err)
	}
	if c.PID == 0 {
		return nil // foreign, without a handle: the listener decides
	}
	start, err := c.process.openOld(c.PID, c.UID)
	if err != nil {
		return err
	}
	c.Instance = Instance(c.PID, start)
	return nil
}

func peerPidfd(fd int) (int, error) {
	return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
}

// UsableUID refuses ids that identify no user. In a user namespace every uid without a
// mapping reads as the overflow uid. The overflow uid is accepted only if it is the uid of
// this process and every uid is mapped, so that no other uid reads as it.
func UsableUID(uid uint32) error {
	if uid == noUID {
		return ErrNoIdentity
	}
	if uid != overflowUID() {
		return nil
	}
	if mapped, err := UIDsMapped(); err == nil && mapped && uid == uint32(os.Geteuid()) {
		return nil
	}
	return fmt.Errorf("uid %d is the overflow uid: %w", uid, ErrNoIdentity)
}

func overflowUID() uint32 {
	b, _ := ReadProc("/proc/sys/kernel/overflowuid")
	return overflowIn(b)
}

// overflowIn returns the number in the text, or the kernel's built-in value if it has none.
func overflowIn(text []byte) uint32 {
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 65534
	}
	return uint32(n)
}

// UIDsMapped reports whether every uid is mapped to itself. False means that the daemon
// runs in a user namespace, where foreign uids cannot be distinguished; status has to
// report this.
func UIDsMapped() (bool, error) {
	b, err := ReadProc("/proc/self/uid_map")
	if err != nil {
		return false, fmt.Errorf("reading the uid map: %w", err)
	}
	return strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295", nil
}

// peerGroups reads SO_PEERGROUPS (Linux 4.13), which x/sys does not wrap. If the buffer is
// too small, the kernel returns ERANGE and the size.
func peerGroups(fd int) ([]uint32, bool) {
	buf := make([]byte, 4*64)
	for range 2 {
		size := uint32(len(buf))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			groups := make([]uint32, 0, size/4)
			for b := buf[:size]; len(b) >= 4; b = b[4:] {
				groups = append(groups, binary.NativeEndian.Uint32(b))
			}
			return groups, true
		case errno == unix.ERANGE && int(size) > len(buf):
			buf = make([]byte, size)
		default:
			return nil, false
		}
	}
	return nil, false
}

// peerLabel is empty without a security module.
func peerLabel(fd int) string {
	s, _ := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_PEERSEC)
	return s
}

// foreign compares the peer's pid and mount namespaces with those of this process. A peer
// whose namespaces cannot be read (another user's process) is not foreign; its uid is
// checked anyway.
func foreign(pid int32) bool {
	if pid == 0 {
		return true
	}
	for _, ns := range []string{"pid", "mnt"} {
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			continue
		}
		theirs, err := os.Readlink("/proc/" + strconv.Itoa(int(pid)) + "/ns/" + ns)
		if err == nil && theirs != ours {
			return true
		}
	}
	return false
}

// instanceOfPidfd names the process by the inode of its handle, which is unique during this
// boot on pidfs (Linux 6.9). Before that all handles share one inode, and pid and start
// time are used instead.
func instanceOfPidfd(pidfd int, pid int32) (string, bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(pidfd, &fs) == nil && fs.Type == unix.PID_FS_MAGIC && unix.Fstat(pidfd, &st) == nil {
		return bootID() + "/" + strconv.FormatUint(st.Ino, 10), true
	}
	start, err := startTime(unix.AT_FDCWD, "/proc/"+strconv.Itoa(int(pid))+"/stat")
	if err != nil {
		return "", false
	}
	return Instance(pid, start), false
}

// Instance returns the name of a process instance: "BOOT/PID@START".
func Instance(pid int32, start uint64) string {
	return bootID() + "/" + strconv.Itoa(int(pid)) + "@" + strconv.FormatUint(start, 10)
}

// BootID returns the boot id of the kernel, or "boot" if it cannot be read.
func BootID() string { return bootID() }

var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "boot"
	}
	return strings.TrimSpace(string(b))
})
