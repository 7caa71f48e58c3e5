package process

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// children lists the direct children of a process, zombies included. The kernel's list may miss some while others
// end; callers repeat until wait4 reports that none is left.
func children(parent int) []int {
	tasks := "/proc/" + strconv.Itoa(parent) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	var all []int
	for _, t := range threads {
		list, err := readProc(tasks + "/" + t.Name() + "/children")
		if err == unix.ENOENT && unix.Access(tasks+"/"+t.Name()+"/stat", unix.F_OK) == nil {
			return scanChildren(parent) // a kernel without CONFIG_PROC_CHILDREN
		}
		for _, f := range bytes.Fields(list) {
			if pid, err := strconv.Atoi(string(f)); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

// scanChildren is children for such a kernel: it reads the parent of every process.
func scanChildren(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if _, ppid := stat(pid); ppid == parent {
				all = append(all, pid)
			}
		}
	}
	return all
}

// stat returns the third and fourth field of /proc/PID/stat. The second, the program's name, may contain any
// character and ends at the last parenthesis. Zeros: the process does not exist.
func stat(pid int) (state byte, parent int) {
	text, err := readProc("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent
}

// readProc reads a file of /proc with plain system calls: it races with processes that fork, and needs no poller.
func readProc(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var all []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return all, nil
		}
		all = append(all, buf[:n]...)
	}
}
