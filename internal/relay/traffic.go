package relay

import (
	"sync/atomic"

	"github.com/doorward/doorward/internal/relay/failure"
)

// traffic counts the calls and listens in flight to one server.
type traffic struct {
	active  atomic.Int32 // calls in flight
	streams atomic.Int32 // listens of clients
}

// enter counts a call that is not spared. The caller calls leave after it, if enter succeeds.
func (t *traffic) enter(most int, spared bool) (leave func(), err error) {
	if spared {
		return func() {}, nil
	}
	if n := t.active.Add(1); most > 0 && int(n) > most {
		t.active.Add(-1)
		return nil, failure.ErrConcurrency
	}
	return func() { t.active.Add(-1) }, nil
}

// enterStream counts a listen of a client; false: it is one too many. leaveStream follows
// each counted one.
func (t *traffic) enterStream(most int) bool {
	if n := t.streams.Add(1); most > 0 && int(n) > most {
		t.streams.Add(-1)
		return false
	}
	return true
}

func (t *traffic) leaveStream() { t.streams.Add(-1) }

func (t *traffic) full(most int) bool {
	return most > 0 && int(t.active.Load()) >= most
}
