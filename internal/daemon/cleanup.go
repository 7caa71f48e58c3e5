package daemon

import (
	"slices"
	"sync"
)

// undoing is a list of functions to call at the end, newest first. A function that is added
// after the end is called at once.
type undoing struct {
	mu   sync.Mutex
	todo []func()
	over bool
}

func (u *undoing) add(f func()) {
	u.mu.Lock()
	over := u.over
	if !over {
		u.todo = append(u.todo, f)
	}
	u.mu.Unlock()
	if over {
		f()
	}
}

func (u *undoing) all() {
	u.mu.Lock()
	todo := u.todo
	u.todo, u.over = nil, true
	u.mu.Unlock()
	for _, f := range slices.Backward(todo) {
		f()
	}
}
