package session

import (
	"crypto/sha256"
	"sync"
)

// maxReadings bounds the remembered tokens.
const maxReadings = 1024

// readings caches the payloads of valid tokens, because a client sends the same token
// with each request. Only the check of the MAC and the parsing are cached, whose result
// depends on the keys alone; [Keeper.Check] checks each time whether the session is live
// and whose it is. Invalid tokens are not cached.
type readings struct {
	mu sync.RWMutex
	of *ring // the keys of the MACs
	by map[digest]payload
}

// read returns the payload of a token under the keys r, or the reason for which it is
// refused.
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

// keep drops all readings under other keys, and all readings when there are too many.
func (m *readings) keep(r *ring, id digest, p payload) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of != r || len(m.by) >= maxReadings {
		m.of, m.by = r, make(map[digest]payload)
	}
	m.by[id] = p
}
