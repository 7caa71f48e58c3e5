//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// searches returns the ways to look for canaries without a path, by name.
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

// pids returns the processes in reach, other thieves excluded. If /proc belongs to another pid namespace, its numbers
// would denote other processes here, so the result is empty.
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

// memories tries to attach to each process and to read or open its memory. Control of another server or of Doorward
// is a way out.
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

// sockets tries to connect to every listening Unix socket in /proc/net/unix, abstract ones included.
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

// keys reads the keyrings of the session, the user and the process.
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

// devices tries to open the disks of the machine, by device nodes that it makes and by those in /dev, and further
// sensitive devices.
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

// settings opens files that control the machine for writing, and writes nothing.
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

// terminal tries to insert a character into the input of a terminal shared with the user.
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
