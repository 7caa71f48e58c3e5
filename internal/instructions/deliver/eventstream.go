package deliver

import (
	"maps"
	"slices"
	"sync"
)

// The events of a stream.
const (
	EventChanged = "instructions.changed" // with the present revision
	EventRevoked = "session.revoked"      // the last event of a stream
)

// Event is one event of a stream of /auth/events.
type Event struct {
	Name     string
	Revision string // of what the reader may read; empty with EventRevoked
}

// earRoom is how many events wait for a slow reader. Each event supersedes the ones
// before it, so the oldest are dropped.
const earRoom = 4

// ears holds the open streams of events.
type ears struct {
	mu   sync.Mutex
	all  map[*ear]struct{}
	over bool
}

// ear is one stream of events.
type ear struct {
	r        *Reader
	out      chan Event
	revision string // the last one that was sent
}

// Hears subscribes a reader to its events: its documents changed, or its session
// ended. After the end of the session or of the daemon the channel is closed.
// leave unsubscribes without closing it.
func (s *Server) Hears(r *Reader) (events <-chan Event, leave func()) {
	e := &ear{r: r, out: make(chan Event, earRoom), revision: s.readers.revision(r)}
	s.ears.add(e)
	if r.Session != nil && !s.readers.alive(r) { // it may have ended before it was added
		s.ears.revoke(r.Session.ID)
	}
	s.nudge() // the revision may have changed meanwhile
	return e.out, func() { s.ears.remove(e) }
}

func (t *ears) add(e *ear) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		close(e.out)
		return
	}
	if t.all == nil {
		t.all = make(map[*ear]struct{})
	}
	t.all[e] = struct{}{}
}

func (t *ears) remove(e *ear) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, e)
}

// revoke ends the streams of a session.
func (t *ears) revoke(session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.all {
		if e.r.Session != nil && e.r.Session.ID == session {
			e.put(Event{Name: EventRevoked})
			close(e.out)
			delete(t.all, e)
		}
	}
}

// shut ends all streams, and those that are added later.
func (t *ears) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for e := range t.all {
		close(e.out)
		delete(t.all, e)
	}
}

// look sends each reader a changed revision. A reader that can get nothing at the moment
// is told when it can.
func (t *ears) look(revision func(*Reader) string) {
	t.mu.Lock()
	open := slices.Collect(maps.Keys(t.all))
	t.mu.Unlock()
	for _, e := range open {
		now := revision(e.r) // asks policy, so not under the lock
		t.mu.Lock()
		if _, there := t.all[e]; there && now != "" && now != e.revision {
			e.revision = now
			e.put(Event{EventChanged, now})
		}
		t.mu.Unlock()
	}
}

// put never blocks. The caller holds the lock, so it is the only writer.
func (e *ear) put(ev Event) {
	for {
		select {
		case e.out <- ev:
			return
		default:
		}
		select {
		case <-e.out:
		default:
		}
	}
}
