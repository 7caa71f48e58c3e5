package agent

import "sync"

// signals distributes the store's notifications to waiting calls, so that they do
// not poll the database.
//
// Invariant: no event after join is missed: a waiter joins, then looks, then waits, then
// looks again (level-triggered). A pending signal stands for all later ones.
type signals struct {
	mu      sync.Mutex
	waiters map[string]map[*waiter]struct{} // by topic
}

// topicAny is the topic of waiters for every signal.
const topicAny = "*"

type waiter struct{ wake chan struct{} }

func newSignals() *signals { return &signals{waiters: make(map[string]map[*waiter]struct{})} }

// join begins to wait for topics. leave must be called.
func (g *signals) join(topics ...string) (wake <-chan struct{}, leave func()) {
	w := &waiter{wake: make(chan struct{}, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range topics {
		if g.waiters[t] == nil {
			g.waiters[t] = make(map[*waiter]struct{})
		}
		g.waiters[t][w] = struct{}{}
	}
	return w.wake, func() { g.leave(w, topics) }
}

func (g *signals) leave(w *waiter, topics []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range topics {
		delete(g.waiters[t], w)
		if len(g.waiters[t]) == 0 {
			delete(g.waiters, t)
		}
	}
}

// signal wakes the waiters of a topic; the empty topic wakes all, because signals may
// have been missed. It does not block.
func (g *signals) signal(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if topic != "" {
		wakeAll(g.waiters[topic])
		wakeAll(g.waiters[topicAny])
		return
	}
	for _, ws := range g.waiters {
		wakeAll(ws)
	}
}

func wakeAll(ws map[*waiter]struct{}) {
	for w := range ws {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// topicSession is signalled by this package when a session gets another peer or joins
// another session.
func topicSession(session string) string { return "session:" + session }
