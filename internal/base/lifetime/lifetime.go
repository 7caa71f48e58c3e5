// Package lifetime has a context for what lives long and is idle most of the time.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// New returns a context that ends with its parent, or when end is called. It is a context of
// context.WithCancel, except that it keeps nothing for contexts that were derived from it and
// have ended: context.WithCancel keeps a map of 250 bytes once it has had one.
func New(parent context.Context) (ctx context.Context, end context.CancelFunc) {
	l := &life{parent: parent}
	if l.err = parent.Err(); l.err != nil {
		return l, func() {}
	}
	if p, ok := parent.(*life); ok {
		l.own.f = l.follow
		if !p.add(&l.own) {
			l.follow()
		}
	} else if parent.Done() != nil {
		l.stop = context.AfterFunc(parent, l.follow)
	}
	return l, l.end
}

// life is the context that New returns. Its lock is not held while another context ends.
type life struct {
	parent context.Context
	own    waiter      // in the list of a parent that is a life
	stop   func() bool // ends the wait for the end of any other parent; nil: there is none

	mu    sync.Mutex
	done  chan struct{} // nil: Done was not called
	err   error         // nil: it has not ended
	first *waiter
}

// waiter is a function to call at the end of a life, in a list of all of them.
type waiter struct {
	f          func()
	prev, next *waiter
	called     bool
}

func (l *life) Deadline() (time.Time, bool) { return l.parent.Deadline() }

func (l *life) Value(key any) any { return l.parent.Value(key) }

func (l *life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// AfterFunc calls f when the context ends, and on a goroutine of its own if it has ended. stop
// ends that, and reports whether f will not be called. Package context calls it for each
// context that is derived from this one; such an f returns at once.
func (l *life) AfterFunc(f func()) (stop func() bool) {
	w := &waiter{f: f}
	if !l.add(w) {
		go f()
	}
	return func() bool { return l.remove(w) }
}

// add puts a waiter into the list; false: the context has ended.
func (l *life) add(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.called = l.err != nil; w.called {
		return false
	}
	if w.next = l.first; w.next != nil {
		w.next.prev = w
	}
	l.first = w
	return true
}

// remove takes a waiter out of the list; false: it was taken before.
func (l *life) remove(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.called {
		return false
	}
	w.called = true
	if w.next != nil {
		w.next.prev = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	w.f, w.prev, w.next = nil, nil, nil // a function that stops w keeps it, and nothing else
	return true
}

// end is the context.CancelFunc.
func (l *life) end() {
	l.finish(context.Canceled)
	if p, ok := l.parent.(*life); ok {
		p.remove(&l.own)
	} else if l.stop != nil {
		l.stop()
	}
}

// follow ends the context after its parent.
func (l *life) follow() { l.finish(l.parent.Err()) }

// finish ends the context and what was derived from it.
func (l *life) finish(err error) {
	all := l.taken(err)
	for w := all; w != nil; {
		f, next := w.f, w.next
		w.f, w.prev, w.next = nil, nil, nil
		f()
		w = next
	}
}

// taken ends the context, and returns the list of its waiters; nil: it had ended, or has none.
func (l *life) taken(err error) (all *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil
	}
	l.err = err
	if l.done != nil {
		close(l.done)
	}
	all, l.first = l.first, nil
	for w := all; w != nil; w = w.next {
		w.called = true
	}
	return all
}
