package relay

import (
	"sync"
)

const (
	// maxParked bounds the parked calls of one principal on one server. The oldest
	// one expires when there are more.
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

// add enters a call. oldest is the one to expire if its principal has one too many.
func (k *parking) add(p *parked) (oldest *parked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, p)
	n := 0
	for _, q := range k.calls {
		if q.to.X.Who.Name() == p.to.X.Who.Name() {
			if n++; oldest == nil {
				oldest = q
			}
		}
	}
	if n > maxParked {
		return oldest
	}
	return nil
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
