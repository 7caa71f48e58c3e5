package peer

import (
	"fmt"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// maxLineage bounds the length of a chain of processes, and so the work of one call.
const maxLineage = 512

// link is one process of a chain. The fields pid and start identify its instance.
type link struct {
	pid, parent int32
	start       uint64
}

// Ancestors returns the process of c and all processes above it up to the first one of
// the system, nearest first. A name has the form of attest.Instance, "BOOT/PID@START":
// the start time does not change on exec, and a process with a reused number has another
// one.
//
// The chain is observed. Every process in it is above c. A process that was above c is
// missing if it has ended and its child was adopted (setsid alone does not cause that).
// The chain may therefore be used to refuse, never to allow.
//
// It returns ErrLineage when the chain does not end at the first process of this
// pid namespace, keeps changing, or has ended.
func Ancestors(c *attest.Credentials) ([]string, error) {
	if c == nil || c.PID <= 0 || c.Foreign || !ownProc() {
		return nil, ErrLineage
	}
	names, err := lineage(c.PID, look)
	if err == nil && !c.Alive() {
		return nil, fmt.Errorf("%w: it has ended", ErrLineage)
	}
	return names, err
}

// AncestorsOf is Ancestors for the process of a Holder.
func AncestorsOf(h Holder) ([]string, error) {
	if h.PID <= 0 || !ownProc() {
		return nil, ErrLineage
	}
	names, err := lineage(h.PID, look)
	if err == nil && names[0] != h.Process {
		return nil, fmt.Errorf("%w: it has ended", ErrLineage)
	}
	return names, err
}

// lineage repeats the walk until two looks at the chain agree. see is look; tests pass a
// function that changes something between two looks.
func lineage(pid int32, see func(int32) (relative, bool)) ([]string, error) {
	for range 5 {
		chain, ok := ascend(pid, see)
		if !unchanged(chain, see) {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("%w: nothing above process %d can be seen", ErrLineage, last(pid, chain))
		}
		names := make([]string, len(chain))
		for i, l := range chain {
			names[i] = attest.Instance(l.pid, l.start)
		}
		return names, nil
	}
	return nil, fmt.Errorf("%w: they keep changing", ErrLineage)
}

// ascend walks up from pid and reports whether it reached the first process. A process
// other than the first that has no parent was put into this namespace by a process
// outside of it, which is not visible here.
func ascend(pid int32, see func(int32) (relative, bool)) (chain []link, ok bool) {
	for len(chain) < maxLineage {
		r, there := see(pid)
		if !there {
			return chain, false
		}
		chain = append(chain, link{pid, r.parent, r.start})
		if r.parent <= 0 {
			return chain, pid == 1
		}
		pid = r.parent
	}
	return chain, false
}

// unchanged checks a chain again. A process changes its parent only when the parent ends.
// If the parent is the same before and after the walk, it was the parent throughout, and
// its number was not reused.
func unchanged(chain []link, see func(int32) (relative, bool)) bool {
	for i, l := range chain {
		r, there := see(l.pid)
		if !there || r.parent != l.parent || r.start != l.start || i > 0 && l.start > chain[i-1].start {
			return false
		}
	}
	return true
}

// last returns the number of the last process of chain, or pid if the chain is empty.
func last(pid int32, chain []link) int32 {
	if len(chain) > 0 {
		pid = chain[len(chain)-1].pid
	}
	return pid
}
