package relay

import (
	"sync"
)

const (
	// maxParked bounds the parked calls of one principal on one server. The oldest one that
	// no request waits for expires when there are more.
	maxParked = 256
	// maxLanes bounds the further connections for calls that ask, where a question does not
	// name its call.
	maxLanes = 8
	// maxAsking bounds the names in askers.
	maxAsking = 1000
)

// parking holds the parked calls of one server, oldest first.
type parking struct {
	mu    sync.Mutex
	calls []*parked
}

// add enters a call and reports whether its principal has too many now.
func (k *parking) add(p *parked) (excess bool) {
	k.mu.Lock()
	k.calls = append(k.calls, p)
	k.mu.Unlock()
	return len(k.of(p.owner())) > maxParked
}

// of returns the parked calls of a principal, oldest first.
func (k *parking) of(owner string) (all []*parked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.calls {
		if p.owner() == owner {
			all = append(all, p)
		}
	}
	return all
}

// trim expires the oldest calls of a principal that has too many. It passes over those with a
// request that waits, which do not expire.
func (k *parking) trim(owner string) {
	for _, p := range k.of(owner) {
		if len(k.of(owner)) <= maxParked {
			return
		}
		p.expire()
	}
}

func (k *parking) remove(p *parked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, q := range k.calls {
		if q == p {
			k.calls = append(k.calls[:i], k.calls[i+1:]...)
			return
		}
	}
}

func (k *parking) find(id string) *parked {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.calls {
		if p.id == id {
			return p
		}
	}
	return nil
}

// askers holds the tools, prompts and resources of a server that ask questions, or may have
// asked.
type askers struct {
	mu    sync.Mutex
	known map[string]bool
}

func (a *askers) learn(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = make(map[string]bool)
	}
	if len(a.known) < maxAsking {
		a.known[name] = true
	}
}

func (a *askers) knows(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[name]
}
