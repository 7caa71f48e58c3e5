package store

import (
	"maps"
	"slices"
	"sync"
)

// hub calls the listeners with the topics of commits, from a goroutine of its own: a slow
// listener delays other listeners, but no writer. A topic waits at most once, so the queue
// is bounded by the number of different topics.
type hub struct {
	mu      sync.Mutex
	waiting []string
	has     map[string]bool // the topics in waiting
	fns     map[int]func(string)
	next    int

	wake chan struct{} // holds an element when topics wait
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

func newHub() *hub {
	h := &hub{has: make(map[string]bool), fns: make(map[int]func(string)),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go h.run()
	return h
}

func (h *hub) publish(topics ...string) {
	if len(topics) == 0 {
		return
	}
	h.mu.Lock()
	for _, t := range topics {
		if !h.has[t] {
			h.has[t] = true
			h.waiting = append(h.waiting, t)
		}
	}
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *hub) listen(fn func(string)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	id := h.next
	h.fns[id] = fn
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.fns, id)
	}
}

func (h *hub) run() {
	defer close(h.done)
	for {
		select {
		case <-h.stop:
			h.deliver()
			return
		case <-h.wake:
			h.deliver()
		}
	}
}

func (h *hub) deliver() {
	h.mu.Lock()
	topics := h.waiting
	h.waiting = nil
	clear(h.has)
	ids := slices.Collect(maps.Keys(h.fns))
	h.mu.Unlock()
	for _, t := range topics {
		for _, id := range ids {
			h.mu.Lock()
			fn := h.fns[id]
			h.mu.Unlock()
			if fn != nil {
				fn(t)
			}
		}
	}
}

// close delivers the waiting topics and ends the goroutine.
func (h *hub) close() {
	h.once.Do(func() { close(h.stop) })
	<-h.done
}
