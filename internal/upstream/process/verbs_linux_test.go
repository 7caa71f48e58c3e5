package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// verbs are what a prisoner can try.
func verbs() map[string]func(args []string) (string, error) {
	return map[string]func(args []string) (string, error){
		"read": func(a []string) (string, error) {
			b, err := os.ReadFile(a[0])
			return "[" + strings.ReplaceAll(string(b), "\n", `\n`) + "]", err
		},
		"list": func(a []string) (string, error) {
			entries, err := os.ReadDir(a[0])
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			return "[" + strings.Join(names, " ") + "]", err
		},
		"write": func(a []string) (string, error) { return "", os.WriteFile(a[0], []byte("written"), 0o600) },
		"overwrite": func(a []string) (string, error) {
			f, err := os.OpenFile(a[0], os.O_WRONLY, 0)
			if err != nil {
				return "", err
			}
			return "", f.Close()
		},
		"chmod":    func(a []string) (string, error) { return "", unix.Chmod(a[0], 0o600) },
		"rename":   func(a []string) (string, error) { return "", unix.Rename(a[0], a[1]) },
		"truncate": func(a []string) (string, error) { return "", os.Truncate(a[0], 0) },
		"stat": func(a []string) (string, error) {
			_, err := os.Stat(a[0])
			return "", err
		},
		"cwd":     func([]string) (string, error) { return os.Getwd() },
		"parent":  func([]string) (string, error) { return tryList(".." + strings.Repeat("/..", 20)) },
		"tmpdir":  func([]string) (string, error) { return "", tryTemp() },
		"uid":     func([]string) (string, error) { return fmt.Sprint(os.Getuid(), os.Getgid(), os.Geteuid()), nil },
		"user":    func([]string) (string, error) { _, err := user.Current(); return "", err },
		"dial":    func(a []string) (string, error) { return tryDial(a[0], a[1]) },
		"signal":  func(a []string) (string, error) { return "", unix.Kill(atoi(a[0]), unix.Signal(atoi(a[1]))) },
		"signals": func(a []string) (string, error) { return "", trySignals(atoi(a[0])) },
		"ptrace":  func(a []string) (string, error) { return "", unix.PtraceSeize(atoi(a[0])) },
		"peek": func(a []string) (string, error) {
			local := []unix.Iovec{{Base: &make([]byte, 8)[0], Len: 8}}
			_, err := unix.ProcessVMReadv(atoi(a[0]), local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&local[0])), Len: 8}}, 0)
			return "", err
		},
		"mount":  func(a []string) (string, error) { return "", unix.Mount("tmpfs", a[0], "tmpfs", 0, "") },
		"umount": func(a []string) (string, error) { return "", unix.Unmount(a[0], unix.MNT_DETACH) },
		"remount": func(a []string) (string, error) {
			return "", unix.Mount("", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "")
		},
		"unshare": func([]string) (string, error) { return tryClone(0, unix.CLONE_NEWUSER) },
		"clone":   func([]string) (string, error) { return tryClone(unix.CLONE_NEWUSER, 0) },
		"clone3":  func([]string) (string, error) { return trySys(unix.SYS_CLONE3, 0, 0, 0) },
		"nested":  func(a []string) (string, error) { return tryNested(a) },
		"uring":   func([]string) (string, error) { return trySys(unix.SYS_IO_URING_SETUP, 0, 0, 0) },
		"bpf":     func([]string) (string, error) { return trySys(unix.SYS_BPF, ^uintptr(0), 0, 0) },
		"key": func(a []string) (string, error) {
			id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", a[0], 0)
			return map[bool]string{true: "found"}[err == nil && id != 0], err
		},
		"socket": func(a []string) (string, error) {
			fd, err := unix.Socket(atoi(a[0]), atoi(a[1]), atoi(a[2]))
			if err == nil {
				err = unix.Close(fd)
			}
			return "", err
		},
		"fastopen": func(a []string) (string, error) { return "", tryFastOpen(a[0]) },
		"rlimit": func(a []string) (string, error) {
			var l unix.Rlimit
			err := unix.Getrlimit(map[string]int{"core": unix.RLIMIT_CORE, "files": unix.RLIMIT_NOFILE}[a[0]], &l)
			return fmt.Sprintf("%d/%d", l.Cur, l.Max), err
		},
		"status": func(a []string) (string, error) {
			b, err := os.ReadFile("/proc/self/status")
			for line := range strings.Lines(string(b)) {
				if name, value, _ := strings.Cut(line, ":"); name == a[0] {
					return strings.TrimSpace(value), nil
				}
			}
			return "", err
		},
		"run": func(a []string) (string, error) {
			out, err := exec.Command(a[0], a[1:]...).CombinedOutput()
			return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", " | "), err
		},
		"processes": func([]string) (string, error) {
			all, err := filepath.Glob("/proc/[0-9]*")
			return strconv.Itoa(len(all)), err
		},
		"listen": func(a []string) (string, error) {
			l, err := net.Listen(a[0], a[1])
			if err == nil {
				err = l.Close()
			}
			return "", err
		},
		"interfaces": func([]string) (string, error) {
			b, err := os.ReadFile("/proc/net/dev")
			return strconv.Itoa(strings.Count(string(b), ":")), err
		},
	}
}

func atoi(s string) int { return must(strconv.Atoi(s)) }

func tryList(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(len(entries) > 5), nil
}

func tryTemp() error {
	f, err := os.CreateTemp("", "x")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func tryDial(network, address string) (string, error) {
	if network == "abstract" {
		network, address = "unix", "@"+address
	}
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if network == "udp" {
		_, err = c.Write([]byte("x"))
	}
	return "", err
}

// trySignals sends every signal to a process, many times. It begins when the process ignores them, which a
// supervisor does a moment after it has started us.
func trySignals(pid int) error {
	for end := time.Now().Add(10 * time.Second); !ignores(pid, 64) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		for sig := range syscall.Signal(65) {
			if sig != unix.SIGTERM { // which the first process passes on to us
				_ = unix.Kill(pid, sig)
			}
		}
	}
	time.Sleep(50 * time.Millisecond)
	return nil
}

// ignores reports whether a process ignores a signal. The last one, 64, is ignored after all others.
func ignores(pid int, sig syscall.Signal) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "\nSigIgn:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	bits, _ := strconv.ParseUint(mask, 16, 64)
	return bits&(1<<(sig-1)) != 0
}

func trySys(nr, a, b, c uintptr) (string, error) {
	if _, _, err := unix.Syscall(nr, a, b, c); err != 0 {
		return "", err
	}
	return "", nil
}

func tryClone(flags, unshare uintptr) (string, error) {
	c := exec.Command("/bin/true")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Unshareflags: unshare}
	return "", c.Run()
}

// tryNested makes namespaces in which it is root, and tries things there.
func tryNested(attempts []string) (string, error) {
	c := exec.Command(self(), "as-prisoner", strings.Join(attempts, " "))
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := c.CombinedOutput()
	_, result, _ := strings.Cut(strings.TrimSpace(string(out)), ": ")
	return result, err
}

// tryFastOpen sends data in the opening of a connection.
func tryFastOpen(address string) error {
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
	return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, to)
}
