package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the cgroups below the one that was delegated to the daemon.
const (
	daemonGroup = "doorward-daemon"
	serverGroup = "doorward-server-"
)

// cgroups makes a cgroup for each contained server, below one that was delegated to the daemon: by systemd, which
// says so in an attribute, or as the root of a cgroup namespace, as in a container. Any other cgroup belongs to a
// program that does not expect subgroups; then the limits are kept by watching.
type cgroups struct {
	base string
	next atomic.Uint64
}

// openCgroups returns nil if no cgroup was delegated.
func openCgroups() *cgroups {
	mount, own := findCgroup()
	if mount == "" {
		return nil
	}
	dir := filepath.Join(mount, own)
	if parent := filepath.Dir(dir); own != "/" && delegated(parent) && !delegated(dir) && alone(parent, filepath.Base(dir)) {
		return divide(parent) // DelegateSubgroup= has moved the daemon already
	}
	if own != "/" && !delegated(dir) {
		return nil
	}
	return settle(dir)
}

// findCgroup returns where cgroup version 2 is mounted, and the path of this process's cgroup in it.
func findCgroup() (mount, own string) {
	mounts, err := readProc("/proc/self/mountinfo")
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); len(f) > 4 && strings.HasPrefix(after, "cgroup2 ") && f[3] == "/" {
			mount = f[4]
			break
		}
	}
	groups, err := readProc("/proc/self/cgroup")
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return mount, strings.TrimSpace(path)
		}
	}
	return "", ""
}

// delegated reports whether systemd has marked a cgroup as its service's own, by an extended attribute.
func delegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		b := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, b); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}

// alone reports whether a cgroup has no other below it than the named one and those of servers. The delegated cgroup
// of a user's service manager, for example, has everything of that user in it.
func alone(dir, name string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.IsDir() && e.Name() != name && !strings.HasPrefix(e.Name(), serverGroup)
	})
}

// settle moves the daemon into a cgroup below dir, because controllers cannot be enabled in one that has processes.
func settle(dir string) *cgroups {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(procs)) != strconv.Itoa(os.Getpid()) {
		return nil // it has other processes
	}
	aside := filepath.Join(dir, daemonGroup)
	if err := os.Mkdir(aside, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil
	}
	if writeCgroup(aside, "cgroup.procs", strconv.Itoa(os.Getpid())) != nil {
		return nil
	}
	if c := divide(dir); c != nil {
		return c
	}
	_ = writeCgroup(dir, "cgroup.procs", strconv.Itoa(os.Getpid())) // moving back; a failure has no consequence
	_ = os.Remove(aside)
	return nil
}

// divide enables the controllers for subgroups, and ends what an earlier daemon left there.
func divide(dir string) *cgroups {
	if writeCgroup(dir, "cgroup.subtree_control", "+memory +pids") != nil {
		return nil
	}
	left, _ := filepath.Glob(filepath.Join(dir, serverGroup+"*")) // the pattern is well-formed
	for _, group := range left {
		_ = writeCgroup(group, "cgroup.kill", "1")
		removeCgroup(group)
	}
	return &cgroups{base: dir}
}

// make makes the cgroup of one server. nil: its limits are kept by watching.
func (c *cgroups) make(l Limits) *cgroup {
	if c == nil || l.Memory <= 0 && l.Processes <= 0 {
		return nil
	}
	dir := filepath.Join(c.base, serverGroup+strconv.FormatUint(c.next.Add(1), 10))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil
	}
	g := &cgroup{dir: dir, fd: -1}
	if err := g.limit(l); err != nil {
		g.remove()
		return nil
	}
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		g.remove()
		return nil
	}
	g.fd = fd
	return g
}

// cgroup is the cgroup of one server.
type cgroup struct {
	dir string
	fd  int
}

// ownThreads is the room in the process limit for the threads of the stages themselves.
const ownThreads = 64

func (g *cgroup) limit(l Limits) error {
	var errs []error
	if l.Memory > 0 {
		errs = append(errs, writeCgroup(g.dir, "memory.max", strconv.FormatInt(l.Memory, 10)),
			writeCgroup(g.dir, "memory.oom.group", "1"))
		_ = writeCgroup(g.dir, "memory.swap.max", "0") // the file does not exist in a kernel without swap
	}
	if l.Processes > 0 {
		errs = append(errs, writeCgroup(g.dir, "pids.max", strconv.Itoa(l.Processes+ownThreads)))
	}
	return errors.Join(errs...)
}

// place makes a process start in the cgroup.
func (g *cgroup) place(how *syscall.SysProcAttr) {
	if g != nil {
		how.UseCgroupFD, how.CgroupFD = true, g.fd
	}
}

// close closes the descriptor after the server has been started; its processes keep the cgroup in use.
func (g *cgroup) close() {
	if g != nil && g.fd >= 0 {
		_ = unix.Close(g.fd)
		g.fd = -1
	}
}

// exceeded returns the limit for which the kernel has ended the server; empty: none.
func (g *cgroup) exceeded() string {
	if g == nil {
		return ""
	}
	events, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(events) {
		if name, value, _ := bytes.Cut(line, []byte(" ")); string(name) == "oom_kill" && number(value) > 0 {
			most, _ := os.ReadFile(filepath.Join(g.dir, "memory.max"))
			return fmt.Sprintf("%s: %s", memoryLimit, bytesText(number(most)))
		}
	}
	return ""
}

func (g *cgroup) remove() {
	if g != nil {
		g.close()
		removeCgroup(g.dir)
	}
}

// removeCgroup waits a moment for processes that were killed and are not reaped yet.
func removeCgroup(dir string) {
	for range 50 {
		if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func writeCgroup(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)
}
