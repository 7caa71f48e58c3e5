package deliver

import (
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	// chainKept is how long the ancestors of a process are cached. They cannot gain an
	// ancestor with more rights meanwhile: a process that loses its parent is adopted by
	// one that was above it before, or by a reaper.
	chainKept = 2 * time.Second
	chainsMax = 256
)

// chains caches the ancestors of processes that showed a token recently. Reading them
// costs more than the rest of a token's check, and agents show the token of a session
// file with every request.
type chains struct {
	mu sync.Mutex
	of map[string]chain // by process instance
}

type chain struct {
	processes []string
	until     time.Time
}

// above returns the process behind a request and all processes above it, as seen
// within chainKept. An incomplete chain is not cached.
func (s *credentials) above(r *http.Request, instance string) (processes []string, complete bool) {
	now := time.Now() // Options.Now may be constant in tests
	if instance != "" {
		if found := s.web.chains.find(instance, now); found != nil {
			return found, true
		}
	}
	processes, complete = s.o.Above(r)
	if complete && instance != "" {
		s.web.chains.keep(instance, processes, now)
	}
	return processes, complete
}

func (c *chains) find(instance string, now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.of[instance]; now.Before(known.until) {
		return known.processes
	}
	return nil
}

func (c *chains) keep(instance string, processes []string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]chain)
	}
	if len(c.of) >= chainsMax {
		maps.DeleteFunc(c.of, func(_ string, v chain) bool { return !now.Before(v.until) })
	}
	if len(c.of) < chainsMax {
		c.of[instance] = chain{processes, now.Add(chainKept)}
	}
}
