package peer

import "fmt"

// maxLineage bounds the way up: nobody can have the daemon climb all day.
const maxLineage = 512

// link is one process of a chain, with what names its instance.
type link struct {
	pid, parent int32
	start       uint64
}

// Ancestors names the process of c and all above it up to the first one of the
// system, the nearest first: the process itself, its parent, and so on. A name
// is "BOOT/PID@START", whatever form Instance has; start times do not change on
// exec, and a number that is used again has another one.
//
// It is observed. What is in the chain is above c; what is not may have been
// there and has ended, or has let its child be adopted (setsid alone does not
// do that). So it can be a reason to refuse, and never one to allow.
//
// ErrLineage: the chain does not end at the first process of this pid
// namespace, changes as often as it is looked at, or has ended.
func Ancestors(c *Credentials) ([]string, error) {
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

// lineage climbs until two looks agree. see is look, or what a test does
// between two looks.
func lineage(pid int32, see func(int32) (relative, bool)) ([]string, error) {
	for range 5 {
		chain, ok := ascend(pid, see)
		if !unchanged(chain, see) {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("%w: above process %d nothing can be seen", ErrLineage, last(pid, chain))
		}
		names := make([]string, len(chain))
		for i, l := range chain {
			names[i] = composed(l.pid, l.start)
		}
		return names, nil
	}
	return nil, fmt.Errorf("%w: they change all the time", ErrLineage)
}

// ascend goes up from pid. It reports whether it came to the first process: one
// without a parent that is not the first was put into this namespace from
// outside, by somebody who cannot be seen.
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

// unchanged looks at a chain again. A process leaves its parent only by that
// one's end, and then has another for good: who has the same parent before and
// after had it all the time, and the number of the parent was nobody else's.
func unchanged(chain []link, see func(int32) (relative, bool)) bool {
	for i, l := range chain {
		r, there := see(l.pid)
		if !there || r.parent != l.parent || r.start != l.start || i > 0 && l.start > chain[i-1].start {
			return false
		}
	}
	return true
}

func last(pid int32, chain []link) int32 {
	if len(chain) > 0 {
		pid = chain[len(chain)-1].pid
	}
	return pid
}
