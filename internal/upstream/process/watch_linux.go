package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Pauses between two measurements of a server. The more memory is left, the longer the pause, because memory grows at
// a limited rate. New processes come faster.
const (
	watchShortest = 50 * time.Millisecond
	watchLongest  = time.Second
	forkPause     = 100 * time.Millisecond
	growth        = 4 << 30 // bytes a second
)

// usage is the sum of what a server and all processes that it started use.
type usage struct {
	bytes     int64            // memory of each process alone, and files of scratch directories
	mapped    int64            // shared memory that is mapped
	files     map[uint64]int64 // by inode: files in memory without a path
	processes int              // processes and threads
}

// total counts shared memory once: by its mappings or by its files, whichever is more.
func (u usage) total() int64 {
	var files int64
	for _, size := range u.files {
		files += size
	}
	return u.bytes + max(u.mapped, files)
}

// watch measures what the server uses until it exceeds a limit, and then requests its end. A server that cannot be
// measured is ended too. watch does nothing if a cgroup enforces the limits. It does not see buffers of pipes and
// sockets, nor files of memfd_create without an open descriptor, beyond the part of them that is mapped.
func (j *jail) watch(ended chan<- string) {
	l := j.plan.Limits
	if j.plan.Cgroup || l.Memory <= 0 && l.Processes <= 0 {
		return
	}
	for {
		u, err := j.measure()
		if err != nil {
			ended <- fmt.Sprintf("%s: it cannot be measured: %v", memoryLimit, err)
			return
		}
		if over := u.over(l); over != "" {
			ended <- over
			return
		}
		time.Sleep(u.pause(l, j.forksFreely()))
	}
}

// forksFreely reports whether no limit of the kernel bounds the server's processes.
func (j *jail) forksFreely() bool {
	for _, m := range j.measures {
		if m.Name == processLimit {
			return m.State != Enforced
		}
	}
	return false
}

// over returns the limit that is exceeded; empty: none.
func (u usage) over(l Limits) string {
	switch {
	case l.Memory > 0 && u.total() > l.Memory:
		return fmt.Sprintf("%s: %s of %s", memoryLimit, bytesText(u.total()), bytesText(l.Memory))
	case l.Processes > 0 && u.processes > l.Processes:
		return fmt.Sprintf("%s: %d of %d", processLimit, u.processes, l.Processes)
	}
	return ""
}

func (u usage) pause(l Limits, forksFreely bool) time.Duration {
	pause := watchLongest
	if l.Memory > 0 {
		pause = time.Duration(float64(l.Memory-u.total()) / growth * float64(time.Second))
	}
	pause = min(max(pause, watchShortest), watchLongest)
	switch {
	case forksFreely && u.processes > l.Processes/2:
		return forkPause / 10
	case forksFreely:
		return min(pause, forkPause)
	}
	return pause
}

// measure adds up all processes except this one, and the files in memory.
func (j *jail) measure() (usage, error) {
	u := usage{files: map[uint64]int64{}}
	self, err := os.Readlink("/proc/self") // the pid of this process in the mounted /proc
	if err != nil {
		return u, err
	}
	all, err := j.processes(self)
	if err != nil {
		return u, err
	}
	for _, pid := range all {
		if pid == self {
			continue
		}
		if err := errors.Join(u.add(pid), u.addFiles(pid)); err != nil {
			return u, err
		}
	}
	u.addSegments()
	for _, dir := range j.scratch {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC {
			u.bytes += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return u, nil
}

// processes lists the processes of this namespace: all in a /proc of its own, otherwise the descendants of this
// process.
func (j *jail) processes(self string) ([]string, error) {
	if self != "1" {
		return descendants(self), nil
	}
	fd, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	names, _ := fd.Readdirnames(-1) // after an error, what was read until then counts
	var all []string
	for _, n := range names {
		if n[0] >= '1' && n[0] <= '9' {
			all = append(all, n)
		}
	}
	return all, nil
}

// exhausted returns err if this process has no descriptor or memory left for the measurement. Other errors mean that
// the measured process has ended, or hides its descriptors.
func exhausted(err error) error {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, e) {
			return err
		}
	}
	return nil
}

func descendants(pid string) []string {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return nil
	}
	var all []string
	for _, c := range children(n) {
		name := strconv.Itoa(c)
		all = append(all, name)
		all = append(all, descendants(name)...)
	}
	return all
}

// add counts one process: its own memory and its shared memory, but not the files that it maps, which the kernel can
// drop. Shared memory counts once for each process that maps it.
func (u *usage) add(pid string) error {
	status, err := readProc("/proc/" + pid + "/status")
	if err != nil {
		return exhausted(err)
	}
	for line := range bytes.Lines(status) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		switch string(name) {
		case "RssAnon", "VmSwap":
			u.bytes += number(value) << 10
		case "RssShmem":
			u.mapped += number(value) << 10
		case "Threads":
			u.processes += int(number(value))
		}
	}
	return nil
}

// addFiles counts the files of memfd_create that a process holds open.
func (u *usage) addFiles(pid string) error {
	dir, err := unix.Open("/proc/"+pid+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return exhausted(err)
	}
	f := os.NewFile(uintptr(dir), "fd")
	defer f.Close()
	names, _ := f.Readdirnames(-1) // after an error, what was read until then counts
	target := make([]byte, 16)
	for _, name := range names {
		var st unix.Stat_t
		n, err := unix.Readlinkat(dir, name, target)
		if err == nil && bytes.HasPrefix(target[:n], []byte("/memfd:")) && unix.Fstatat(dir, name, &st, 0) == nil {
			u.files[st.Ino] = st.Blocks * 512
		}
	}
	return nil
}

// addSegments counts the shared memory of System V, which stays without a process.
func (u *usage) addSegments() {
	const id, rss, swap = 1, 14, 15 // columns of /proc/sysvipc/shm (proc_sysvipc(5))
	table, err := readProc("/proc/sysvipc/shm")
	if err != nil {
		return
	}
	for line := range bytes.Lines(table) {
		if f := bytes.Fields(line); len(f) > swap {
			u.files[uint64(number(f[id]))<<32] = number(f[rss]) + number(f[swap])
		}
	}
}
