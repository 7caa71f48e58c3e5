package agent

import (
	"maps"
	"slices"
	"sync"
)

// formersKept bounds the processes of former agents that are remembered.
const formersKept = 8192

// formers are the process instances of agents that had a name here and have left
// the table of sessions: a process does not become the operator's by ending its
// session. They are remembered as long as they live. When the table is full,
// every process counts as a former agent (fail closed).
type formers struct {
	gone func(instance string) bool // nil: of none it is known that it has ended

	mu   sync.Mutex
	are  map[string]struct{}
	full bool
	next int // how many there may be before those that have ended are looked for
}

// add never waits for the system.
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

// any reports whether one of the processes is one of them, as far as is known.
func (f *formers) any(processes []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full || slices.ContainsFunc(processes, func(p string) bool { _, is := f.are[p]; return is })
}

// tidy drops those that have ended, once there are twice as many as were left the
// last time: it costs a system call for each.
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
