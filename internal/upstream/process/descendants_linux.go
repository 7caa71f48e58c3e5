package process

import (
	"bytes"
	"slices"
	"strconv"
)

// maxClimb bounds the chain of parents that is followed.
const maxClimb = 512

// step is one process in a chain of parents. Number and start time together identify the process.
type step struct {
	pid, parent int
	start       string
}

// isBelow reports whether pid is a descendant of top. top must not be reaped meanwhile, so that its number is not
// reused.
//
// A process changes its parent only when the parent ends. If a process has the same parent before and after the look,
// it had it all the time, and the parent's number was not reused; the same holds for each step of the chain. A chain
// that changes counts as no.
func isBelow(pid, top int) bool {
	for range 5 {
		chain := climb(pid, top)
		if chain == nil {
			return false
		}
		if !slices.ContainsFunc(chain, func(s step) bool { return look(s.pid) != s }) {
			return true
		}
	}
	return false
}

// climb returns the chain from pid up to a child of top; nil: there is none.
func climb(pid, top int) (chain []step) {
	for len(chain) < maxClimb {
		s := look(pid)
		if s.parent <= 0 {
			return nil
		}
		chain = append(chain, s)
		if s.parent == top {
			return chain
		}
		pid = s.parent
	}
	return nil
}

// look reads the fourth and the twenty-second field of /proc/PID/stat (see stat). Zero: the process does not exist.
func look(pid int) step {
	text, err := readProc("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return step{}
	}
	const parent, start = 4 - 3, 22 - 3
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= start {
		return step{}
	}
	above, _ := strconv.Atoi(string(fields[parent]))
	return step{pid: pid, parent: above, start: string(fields[start])}
}
