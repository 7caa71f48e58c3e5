package builtin

import (
	"maps"
	"sync"
)

// Tally counts by word. The zero value is ready, and safe for concurrent use.
type Tally struct {
	mu sync.Mutex
	n  map[string]uint64
}

// Add counts one.
func (t *Tally) Add(word string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = make(map[string]uint64)
	}
	t.n[word]++
}

// All returns a copy of the counts, never nil.
func (t *Tally) All() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]uint64, len(t.n))
	maps.Copy(out, t.n)
	return out
}
