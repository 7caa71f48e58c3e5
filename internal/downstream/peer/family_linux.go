package peer

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// relative holds fields of the stat file of a process in /proc.
type relative struct {
	name   string // comm: the process chooses it
	parent int32
	start  uint64 // clock ticks after the boot
}

// look reads the stat file of a process's first thread. Name, parent and start are the
// same as in the stat file of the process, for which the kernel would add up the figures
// of all threads. It uses plain system calls, because os.File would register the file
// with the runtime's poller, which costs more than the read.
func look(pid int32) (r relative, ok bool) {
	return lookIn(unix.AT_FDCWD, "/proc/"+strconv.Itoa(int(pid))+"/", pid)
}

// lookIn is look for a process whose directory is path, which is empty or ends with a slash, below
// an open directory.
func lookIn(dir int, path string, pid int32) (r relative, ok bool) {
	fd, err := unix.Openat(dir, path+"task/"+strconv.Itoa(int(pid))+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, false
	}
	defer unix.Close(fd)
	var buf [1024]byte // the fields up to the start need half of it
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return r, false
	}
	b := buf[:n]
	f := attest.StatFields(b)
	begin := bytes.IndexByte(b, '(')
	if len(f) < 20 || begin < 0 {
		return r, false
	}
	parent, err := strconv.ParseInt(string(f[1]), 10, 32)
	if err != nil {
		return r, false
	}
	r.start, err = strconv.ParseUint(string(f[19]), 10, 64)
	r.parent, r.name = int32(parent), string(b[begin+1:bytes.LastIndexByte(b, ')')])
	return r, err == nil
}

// ancestors returns "PID:NAME" of pid and of the processes above it, at most maxParents.
func ancestors(pid int32) (chain []string) {
	for pid > 0 && len(chain) < maxParents {
		r, ok := look(pid)
		if !ok {
			break
		}
		chain = append(chain, strconv.Itoa(int(pid))+":"+word(r.name))
		pid = r.parent
	}
	return chain
}

// word makes a name one word of a list: white space, separators, characters other than
// printable ASCII and the backslash are written as escapes.
func word(name string) string {
	var b []byte
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' || strings.IndexByte(`,:"\`, c) >= 0 {
			b = fmt.Appendf(b, `\x%02x`, c)
			continue
		}
		b = append(b, c)
	}
	return string(b)
}

// DescendantOf reports whether pid is below ancestor in the tree of processes. It is
// observed by numbers and only a second line of defence: if a process between the two
// ends, pid is no longer below. If the tree keeps changing during the look, the answer is
// true.
func DescendantOf(pid, ancestor int32) bool {
	top, ok := look(ancestor)
	if !ok || pid <= 0 {
		return false
	}
	for range 5 {
		child, ok := look(pid)
		if !ok {
			return false // it has ended, or is hidden from this process
		}
		if below, settled := child.climb(pid, ancestor, top.start); settled {
			return below
		}
	}
	return true
}

// climb walks up from a process, pid. A parent is older than its child; one that is younger has the
// reused number of a parent that has ended, and settled is then false. A descendant of
// the ancestor is not older than it, so most walks are short.
func (child relative) climb(pid, ancestor int32, since uint64) (below, settled bool) {
	for child.start >= since {
		switch {
		case child.parent == ancestor:
			return true, true
		case child.parent <= 0:
			return false, true
		}
		parent, ok := look(child.parent)
		if !ok {
			again, ok := look(pid)
			return false, !ok || again.parent == child.parent
		}
		if parent.start > child.start {
			return false, false
		}
		pid, child = child.parent, parent
	}
	return false, true
}

// seconds formats clock ticks as seconds. Linux reports 100 ticks a second to user space
// on every machine.
func seconds(ticks uint64) string {
	s := strconv.FormatUint(ticks/100, 10) + "."
	if ticks%100 < 10 {
		s += "0"
	}
	return s + strconv.FormatUint(ticks%100, 10)
}

// cgroup returns the path in the unified hierarchy; on a system with cgroup v1 only, the
// path in systemd's own hierarchy.
func cgroup(pid int32) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/cgroup")
	if err != nil {
		return ""
	}
	named := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return path
		}
		if _, path, ok := strings.Cut(line, ":name=systemd:"); ok {
			named = path
		}
	}
	return named
}

// unit returns the last segment of a cgroup path that names a systemd service or
// scope; segments below it are groups of the unit itself.
func unit(path string) string {
	segments := strings.Split(path, "/")
	for i := len(segments) - 1; i >= 0; i-- {
		for _, kind := range []string{".service", ".scope"} {
			if name, ok := strings.CutSuffix(segments[i], kind); ok && name != "" {
				return segments[i]
			}
		}
	}
	return ""
}
