package relay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/upstream"
)

// latecomer waits for a server that was left out of merged lists, and tells the
// listening clients to list again when it answers. There is one for each link,
// and one goroutine while it waits.
type latecomer struct {
	link *link

	mu    sync.Mutex
	lists map[string]bool // the list methods that it failed to answer
	runs  bool
}

// missed notes that a list went out without this server.
func (l *latecomer) missed(method string) {
	if !l.link.hub.watched() {
		return // nobody could be told
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists == nil {
		l.lists = make(map[string]bool)
	}
	l.lists[method] = true
	if !l.runs {
		l.runs = true
		go l.run()
	}
}

// expected reports whether the server owes the answer to a list, so that the
// next one need not wait for it.
func (l *latecomer) expected(method string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[method]
}

// run asks until every missed list has been answered: that, and not that the
// server can be reached, is what a client will see when it looks again.
func (l *latecomer) run() {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		for _, method := range l.owed() {
			if l.asks(method) {
				l.settle(method)
			}
		}
		if l.over() {
			return
		}
		select {
		case <-time.After(pause):
		case <-l.link.ctx.Done():
			return
		}
	}
}

func (l *latecomer) owed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.lists))
}

// asks puts the list request, and reports whether the server answered it.
func (l *latecomer) asks(method string) bool {
	ctx, cancel := context.WithTimeout(l.link.ctx, dialTime)
	defer cancel()
	c, err := l.link.get(ctx)
	if err == nil {
		_, err = c.conn.Call(ctx, &upstream.Request{Method: method, Params: l.link.withMeta(c)}, nil)
		l.link.drop(c)
	}
	return err == nil || errors.Is(err, errGone)
}

func (l *latecomer) settle(method string) {
	l.mu.Lock()
	delete(l.lists, method)
	l.mu.Unlock()
	kind, _ := listingOf(method)
	l.link.hub.publish(upstream.Event{Method: kind.changed})
}

// over ends the wait when no list is owed or no client listens any more.
func (l *latecomer) over() bool {
	watched := l.link.hub.watched()
	l.mu.Lock()
	defer l.mu.Unlock()
	if watched && len(l.lists) > 0 {
		return false
	}
	l.lists, l.runs = nil, false
	return true
}
