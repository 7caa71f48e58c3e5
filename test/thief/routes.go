//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

type reader = func() ([]byte, error)

// most bounds what is read of one file.
const most = 1 << 20

func readFile(path string) reader {
	return func() ([]byte, error) { return slurp(unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)) }
}

func slurp(fd int, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		names, err := f.Readdirnames(-1)
		return []byte(strings.Join(names, "\n")), err
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// own is a directory that the thief may write.
func own() string {
	dir, err := os.MkdirTemp("", "thief")
	if err != nil {
		return "/tmp"
	}
	return dir
}

// routes are the ways to one path.
func routes(path string) map[string]reader {
	all := map[string]reader{"path": readFile(path), "dots": readFile(strings.Repeat("../", 40) + path[1:])}
	for _, root := range roots() {
		all[root] = readFile(root + path)
		all[root+" by dots"] = readFile(root + strings.Repeat("/..", 40) + path)
	}
	dir := own()
	all["symbolic link"] = func() ([]byte, error) {
		link := dir + "/link"
		if err := os.Symlink(path, link); err != nil {
			return nil, err
		}
		return readFile(link)()
	}
	for name, flags := range map[string]int{"hard link": 0, "hard link of a link": unix.AT_SYMLINK_FOLLOW} {
		all[name] = func() ([]byte, error) {
			to := dir + "/" + strings.ReplaceAll(name, " ", "")
			if err := unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, to, flags); err != nil {
				return nil, err
			}
			return readFile(to)()
		}
	}
	all["openat2"] = func() ([]byte, error) {
		return slurp(unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY}))
	}
	all["handle"] = func() ([]byte, error) { return byHandle(path) }
	for i, part := range parents(path) {
		all[fmt.Sprintf("moved parent %d", i)] = func() ([]byte, error) { return byMoving(path, part, dir) }
	}
	all["socket"] = func() ([]byte, error) { return dial(path) }
	return all
}

// roots are other names for a root: those of processes, working directories and descriptors.
func roots() []string {
	var all []string
	for _, pattern := range []string{"/proc/[0-9]*/root", "/proc/[0-9]*/cwd", "/proc/[0-9]*/task/*/root", "/proc/[0-9]*/fd/*", "/proc/self/ns/*", "/dev/fd/*"} {
		names, _ := filepath.Glob(pattern)
		all = append(all, names...)
	}
	for fd := range 256 {
		all = append(all, "/proc/self/fd/"+strconv.Itoa(fd))
	}
	return all
}

// parents are the directories above a path that may be changed, the nearest first.
func parents(path string) []string {
	within := os.Getenv(withinVar)
	if within == "" {
		return nil
	}
	var all []string
	for dir := filepath.Dir(path); strings.HasPrefix(dir, within+"/"); dir = filepath.Dir(dir) {
		all = append(all, dir)
	}
	return all
}

// byMoving moves a directory above the path elsewhere, looks there, and moves it back.
func byMoving(path, parent, dir string) ([]byte, error) {
	var read []byte
	for _, to := range []string{parent + ".moved", dir + "/moved"} {
		if unix.Rename(parent, to) != nil {
			continue
		}
		b, err := readFile(to + strings.TrimPrefix(path, parent))()
		_ = unix.Rename(to, parent)
		if err == nil {
			read = append(read, b...)
		}
	}
	other := dir + "/other"
	_ = os.Mkdir(other, 0o700)
	if unix.Renameat2(unix.AT_FDCWD, parent, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE) == nil {
		if b, err := readFile(other + strings.TrimPrefix(path, parent))(); err == nil {
			read = append(read, b...)
		}
		_ = unix.Renameat2(unix.AT_FDCWD, parent, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
	}
	return read, nil
}

// byHandle opens the file by a handle that is made of what can be known of it, relative to every directory in reach.
func byHandle(path string) ([]byte, error) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err != nil {
		return guessHandles()
	}
	for _, at := range []string{"/", "/tmp", ".", "/usr"} {
		mount, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		b, err := slurp(unix.OpenByHandleAt(mount, handle, unix.O_RDONLY))
		_ = unix.Close(mount)
		if err == nil {
			return b, nil
		}
	}
	return nil, unix.EPERM
}

// guessHandles tries the first inodes of the file systems in reach.
func guessHandles() ([]byte, error) {
	for _, at := range []string{"/usr", "."} {
		mount, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		defer unix.Close(mount)
		for ino := uint32(2); ino < 64; ino++ {
			id := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, ino), 0)
			fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(1, id), unix.O_RDONLY)
			if err == nil {
				_ = unix.Close(fd)
				return []byte("CANARY: a file by its inode"), nil
			}
		}
	}
	return nil, unix.EPERM
}

// dial connects to a path. A socket that takes a connection is a way out.
func dial(path string) ([]byte, error) {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.WriteString(c, "GET /admin/v1/status HTTP/1.1\r\nHost: doorward\r\nConnection: close\r\n\r\n")
	b, _ := io.ReadAll(io.LimitReader(c, most))
	if bytes.Contains(b, []byte(" 200 ")) {
		return []byte("CANARY: an answer of " + path), nil
	}
	return b, nil
}

// searches look for canaries without a path.
func searches() map[string]reader {
	return map[string]reader{
		"environments of processes": func() ([]byte, error) { return globbed("/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline") },
		"memory of processes":       memories,
		"descriptors of processes":  stolen,
		"unix sockets":              sockets,
		"keys":                      keys,
		"devices":                   devices,
		"settings of the machine":   settings,
		"terminal":                  terminal,
	}
}

func globbed(patterns ...string) ([]byte, error) {
	var all []byte
	self := "/proc/" + strconv.Itoa(os.Getpid()) + "/"
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if b, err := readFile(path)(); err == nil && !strings.HasPrefix(path, self) {
				all = append(all, b...)
			}
		}
	}
	return all, nil
}

// pids are the processes in reach that are no thieves themselves. Where /proc belongs to another pid namespace its numbers
// mean other processes here, and there are none.
func pids() []int {
	var all []int
	if here, _ := os.Readlink("/proc/self"); here != strconv.Itoa(os.Getpid()) {
		return nil
	}
	self, _ := os.Readlink("/proc/self/exe")
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		if exe, err := os.Readlink(name + "/exe"); err == nil && exe == self {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(name))
		all = append(all, pid)
	}
	return all
}

// memories looks into processes: whoever can attach to one of another server, or of Doorward, can make it do anything.
func memories() ([]byte, error) {
	for _, pid := range pids() {
		if unix.PtraceSeize(pid) == nil || unix.PtraceAttach(pid) == nil {
			return fmt.Appendf(nil, "CANARY: traced %d", pid), nil
		}
		if fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", pid), unix.O_RDWR, 0); err == nil {
			_ = unix.Close(fd)
			return fmt.Appendf(nil, "CANARY: memory of %d", pid), nil
		}
		buf := make([]byte, 8)
		local := []unix.Iovec{{Base: &buf[0], Len: 8}}
		if _, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&buf[0])), Len: 8}}, 0); err == nil {
			return fmt.Appendf(nil, "CANARY: read %d", pid), nil
		}
	}
	return nil, errors.New("none")
}

func stolen() ([]byte, error) {
	for _, pid := range pids() {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		for n := range 64 {
			if got, err := unix.PidfdGetfd(fd, n, 0); err == nil {
				_ = unix.Close(got)
				return fmt.Appendf(nil, "CANARY: descriptor %d of %d", n, pid), nil
			}
		}
		_ = unix.Close(fd)
	}
	return nil, errors.New("none")
}

// sockets tries every listening socket that is listed, abstract ones too.
func sockets() ([]byte, error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[3] != "00010000" {
			continue
		}
		c, err := net.DialTimeout("unix", f[7], time.Second)
		if err == nil {
			c.Close()
			return []byte("CANARY: connected to " + f[7]), nil
		}
	}
	return nil, errors.New("none")
}

// keys looks through the keyrings of the user and of the session.
func keys() ([]byte, error) {
	var all []byte
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING, unix.KEY_SPEC_PROCESS_KEYRING} {
		buf := make([]byte, 4096)
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, ring, buf, 0)
		if err != nil {
			continue
		}
		for i := 0; i+4 <= min(n, len(buf)); i += 4 {
			value := make([]byte, 4096)
			if m, err := unix.KeyctlBuffer(unix.KEYCTL_READ, int(binary.NativeEndian.Uint32(buf[i:])), value, 0); err == nil {
				all = append(all, value[:min(m, len(value))]...)
			}
		}
	}
	return all, nil
}

// devices makes nodes for the disks of the machine, and opens what is there.
func devices() ([]byte, error) {
	table, _ := os.ReadFile("/proc/partitions")
	dir := own()
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] == "major" {
			continue
		}
		major, _ := strconv.Atoi(f[0])
		minor, _ := strconv.Atoi(f[1])
		node := dir + "/" + f[3]
		_ = unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(uint32(major), uint32(minor))))
		for _, path := range []string{node, "/dev/" + f[3]} {
			if fd, err := unix.Open(path, unix.O_RDONLY, 0); err == nil {
				_ = unix.Close(fd)
				return []byte("CANARY: the disk " + f[3]), nil
			}
		}
	}
	for _, path := range []string{"/dev/mem", "/dev/kmsg", "/dev/port", "/dev/fuse", "/dev/loop-control", "/proc/kcore"} {
		if fd, err := unix.Open(path, unix.O_RDONLY, 0); err == nil {
			_ = unix.Close(fd)
			return []byte("CANARY: " + path), nil
		}
	}
	return nil, errors.New("none")
}

// settings opens what steers the machine, and writes nothing.
func settings() ([]byte, error) {
	paths := []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
		"/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/panic_on_oom"}
	more, _ := filepath.Glob("/sys/fs/cgroup/*/release_agent")
	for _, path := range append(paths, more...) {
		if fd, err := unix.Open(path, unix.O_WRONLY, 0); err == nil {
			_ = unix.Close(fd)
			return []byte("CANARY: " + path), nil
		}
	}
	return nil, errors.New("none")
}

// terminal types into a terminal that is shared with the user.
func terminal() ([]byte, error) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := byte(' ')
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&b))); errno != 0 {
		return nil, errno
	}
	return []byte("CANARY: typed"), nil
}

// tamper changes a path, and what is beside it, in every way. The test looks from outside.
func (l *loot) tamper(path string) {
	if within := os.Getenv(withinVar); within == "" || !strings.HasPrefix(path, within+"/") {
		return
	}
	dir := own()
	planted := dir + "/planted"
	_ = os.WriteFile(planted, []byte("planted by a server"), 0o600)
	acts := []func() error{
		func() error { return os.Chmod(path, 0o666) },
		func() error { return os.Truncate(path, 0) },
		func() error { return os.WriteFile(path, []byte("planted by a server"), 0o600) },
		func() error { return os.WriteFile(path+".planted", []byte("planted by a server"), 0o600) },
		func() error { return unix.Rename(path, path+".moved") },
		func() error { return unix.Rename(planted, path) },
		func() error { return os.Remove(path) },
		func() error { return os.Symlink(planted, path) },
	}
	for _, parent := range parents(path) {
		acts = append(acts, func() error { return os.WriteFile(parent+"/planted", []byte("planted by a server"), 0o600) },
			func() error { return plant(path, parent) })
	}
	for _, act := range acts {
		l.Tried++
		_ = act()
	}
}

// plant puts another directory in the place of one above the path, with a file of the path's name in it.
func plant(path, parent string) error {
	if err := unix.Rename(parent, parent+".away"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte("planted by a server"), 0o600)
}
