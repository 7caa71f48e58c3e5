package mail

import "sync"

// ticker makes the numbers of changes: rising within a node, and distinct between nodes.
type ticker struct {
	mu   sync.Mutex
	slot int64
	last int64
}

const (
	slotBits = 10
	tickBits = 10 // numbers for a millisecond; when they are used up, those of the next are taken
)

func (t *ticker) start(slot, last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slot = slot & (1<<slotBits - 1)
	t.last = max(t.last, last>>slotBits)
}

func (t *ticker) next(now int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last+1, now<<tickBits)
	return t.last<<slotBits | t.slot
}
