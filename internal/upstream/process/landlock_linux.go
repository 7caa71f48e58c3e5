package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock versions of the rights that strict requests: files from 3 (before it, a process that may write a file
// could truncate it), TCP ports from 4, device ioctls from 5, and abstract sockets from 6.
const (
	landlockFiles  = 3
	landlockPorts  = 4
	landlockDevice = 5
	landlockScopes = 6
)

// Rights on files.
const (
	mayRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayWrite = mayRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	mayAll = mayWrite | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// onFile are the rights that apply to a file that is not a directory.
	onFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// ruleset is a Landlock ruleset that is not enforced yet. fd is -1 if there is none.
type ruleset struct {
	fd      int
	handled uint64 // rights on files that the ruleset controls
}

// landlock makes the ruleset: under contain against abstract sockets and signals, under strict for files and ports
// too.
func (j *jail) landlock() (ruleset, error) {
	version := landlockVersion()
	if j.plan.Mode != Strict {
		return j.scope(version)
	}
	switch {
	case version < landlockFiles:
		return ruleset{fd: -1}, fmt.Errorf("strict needs Landlock version %d (Linux 6.2) and this kernel has %d", landlockFiles, version)
	case j.plan.Network == NetworkPorts && version < landlockPorts:
		return ruleset{fd: -1}, fmt.Errorf("a list of ports needs Landlock version %d (Linux 6.7) and this kernel has %d", landlockPorts, version)
	}
	attr := unix.LandlockRulesetAttr{Access_fs: mayAll}
	if version < landlockDevice {
		attr.Access_fs &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if j.plan.Network == NetworkPorts {
		attr.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	j.walls(version, &attr)
	r, err := newRuleset(attr)
	if err != nil {
		return r, err
	}
	if err := j.grant(r); err != nil {
		return r, err
	}
	for _, port := range j.plan.Ports {
		if err := r.port(port); err != nil {
			return r, fmt.Errorf("allowing port %d: %w", port, err)
		}
	}
	j.note("files by allow-list", Enforced, "")
	if j.plan.Network == NetworkPorts {
		j.note("network", Enforced, portsText(j.plan.Ports))
	}
	return r, nil
}

func portsText(ports []uint16) string {
	text := fmt.Sprintf("TCP to the ports %v alone", ports)
	if slices.Contains(ports, dns) {
		return text + "; UDP to any, since names are looked up over it"
	}
	return text
}

// scope makes the ruleset of contain.
func (j *jail) scope(version int) (ruleset, error) {
	var attr unix.LandlockRulesetAttr
	if j.walls(version, &attr); attr.Scoped == 0 {
		return ruleset{fd: -1}, nil
	}
	return newRuleset(attr)
}

// walls denies the abstract sockets of other programs, which belong to the network namespace.
func (j *jail) walls(version int, attr *unix.LandlockRulesetAttr) {
	const name = "no abstract sockets of others"
	switch {
	case version >= landlockScopes:
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		j.note(name, Enforced, "")
	case j.plan.Network == NetworkNone:
		j.note(name, Enforced, "by the network namespace")
	default:
		j.note(name, Unavailable, fmt.Sprintf("this needs Landlock version %d (Linux 6.12) or network: none, and this kernel has %d", landlockScopes, version))
	}
}

// landlockVersion returns 0 if Landlock is missing or switched off.
func landlockVersion() int {
	v, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(v)
}

// newRuleset passes only the part of attr that is set, so that older kernels accept it.
func newRuleset(attr unix.LandlockRulesetAttr) (ruleset, error) {
	size := unsafe.Sizeof(attr.Access_fs)
	switch {
	case attr.Scoped != 0:
		size = unsafe.Sizeof(attr)
	case attr.Access_net != 0:
		size = unsafe.Offsetof(attr.Scoped)
	}
	fd, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if err != 0 {
		return ruleset{fd: -1}, os.NewSyscallError("landlock_create_ruleset", err)
	}
	return ruleset{fd: int(fd), handled: attr.Access_fs}, nil
}

// grant adds the server's grants to the ruleset. A missing path is left out, because Landlock rules refer to files
// and not to names.
func (j *jail) grant(r ruleset) error {
	read := slices.Concat(systemDirs, []string{"/proc"}, j.plan.Read, j.plan.Named, j.plan.Own, j.program)
	dir := j.plan.Dir
	if j.plan.Fixed {
		dir = "." // which was compared with the configured one
	}
	write := slices.Concat([]string{"/dev", "/dev/pts", os.Getenv("TMPDIR"), dir}, j.scratch, j.plan.Write)
	for _, path := range read {
		if err := r.path(path, mayRead); err != nil {
			return err
		}
	}
	for _, path := range write {
		if err := r.path(path, mayWrite|unix.LANDLOCK_ACCESS_FS_IOCTL_DEV); err != nil {
			return err
		}
	}
	return nil
}

// path grants rights on path and everything below.
func (r ruleset) path(path string, rights uint64) error {
	if path == "" || path == "/" {
		return nil // a grant never means the whole root
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // not there, or covered
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= onFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.handled, Parent_fd: int32(fd)}
	err = r.add(unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&rule))
	if err != nil {
		return fmt.Errorf("granting %s: %w", path, err)
	}
	return nil
}

// landlockNetPort is struct landlock_net_port_attr.
type landlockNetPort struct{ rights, port uint64 }

// port grants connections to a port and listening on it.
func (r ruleset) port(port uint16) error {
	const rulePort = 2
	rule := landlockNetPort{rights: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, port: uint64(port)}
	return r.add(rulePort, unsafe.Pointer(&rule))
}

func (r ruleset) add(kind uintptr, rule unsafe.Pointer) error {
	if _, _, err := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), kind, uintptr(rule), 0, 0, 0); err != 0 {
		return err
	}
	return nil
}

// enforce applies the ruleset to this thread and the processes that it starts. It requires no_new_privs.
func (r ruleset) enforce() error {
	if r.fd < 0 {
		return nil
	}
	defer unix.Close(r.fd)
	if _, _, err := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0); err != 0 {
		return errors.Join(errors.New("enforcing Landlock"), err)
	}
	return nil
}
