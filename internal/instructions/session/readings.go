package session

import (
	"crypto/sha256"
	"sync"
)

// maxReadings bounds what is remembered of tokens.
const maxReadings = 1024

// readings remembers what good tokens say, because a client sends the same token with
// each request. Only the MAC and the text are remembered, which cannot change while the
// keys are the same: whether the session lives and whose it is, [Keeper.Check] asks each
// time. Tokens that are no good are not remembered.
type readings struct {
	mu sync.RWMutex
	of *ring // whose keys the MACs are of
	by map[digest]payload
}

// read is what a token says under the keys r; a reason: it is refused.
func (m *readings) read(r *ring, token string) (payload, string) {
	if len(token) > MaxToken {
		return payload{}, Malformed
	}
	id := digest(sha256.Sum256([]byte(token)))
	if p, ok := m.find(r, id); ok {
		return p, ""
	}
	p, reason := r.read(token)
	if reason == "" {
		m.keep(r, id, p)
	}
	return p, reason
}

func (m *readings) find(r *ring, id digest) (payload, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.of != r {
		return payload{}, false
	}
	p, ok := m.by[id]
	return p, ok
}

// keep forgets all readings under other keys, and all when there are too many.
func (m *readings) keep(r *ring, id digest, p payload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of != r || len(m.by) >= maxReadings {
		m.of, m.by = r, make(map[digest]payload)
	}
	m.by[id] = p
}
