package agent

import (
	"maps"
	"slices"
	"sync"
)

// formersKept bounds the remembered processes of former agents.
const formersKept = 8192

// formers holds the process instances of agents that had a name here and have left the
// table of sessions: a process does not become the operator's by ending its session. They
// are remembered as long as they live. When the table is full, every process counts as a
// former agent (fail closed).
type formers struct {
	gone func(instance string) bool // nil: no process is known to have ended

	mu   sync.Mutex
	are  map[string]struct{}
	full bool
	next int // the size above which ended processes are looked for
}

// add remembers processes. It makes no system call.
func (f *formers) add(processes []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.are == nil {
		f.are = make(map[string]struct{})
	}
	for _, p := range processes {
		if _, known := f.are[p]; !known && len(f.are) >= formersKept {
			f.full = true
			return
		}
		f.are[p] = struct{}{}
	}
}

// any reports whether one of the processes is a former agent, or the table is full.
func (f *formers) any(processes []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full || slices.ContainsFunc(processes, func(p string) bool { _, is := f.are[p]; return is })
}

// tidy removes processes that have ended. It looks only when the table has doubled since
// the last time, because it makes a system call for each process.
func (f *formers) tidy() {
	const few = 64
	f.mu.Lock()
	var all []string
	if f.gone != nil && len(f.are) > max(few, f.next) {
		all = slices.Collect(maps.Keys(f.are))
	}
	f.mu.Unlock()
	if all == nil {
		return
	}
	ended := slices.DeleteFunc(all, func(p string) bool { return !f.gone(p) })
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range ended {
		delete(f.are, p)
	}
	f.next = min(2*len(f.are), formersKept/2)
}
