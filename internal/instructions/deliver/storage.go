package deliver

import (
	"context"
	"sync/atomic"
	"time"
)

// storage tracks whether the store is there, and since when.
type storage struct {
	o    *Options
	late *late // nil: the store was there from the start

	begun   atomic.Pointer[time.Time] // when the library began its first look, approximately
	settled atomic.Bool               // the first look is over
}

// Used reports whether there is a store: an existing or a missing configured directory,
// or a remote one.
func (s *storage) Used() bool {
	_, state := s.o.Library.Set()
	return !state.Unused
}

// Away reports whether the store is not there yet.
func (s *storage) Away() bool { return s.late != nil && s.late.there.Load() == nil }

// begins notes that the library begins its first look now.
func (s *storage) begins() {
	now := time.Now()
	s.begun.Store(&now)
}

// settle waits once, for a bounded time shared by all requests, for the first look of the
// library or the first attempt at the remote. A store that answers slowly, or never, delays
// requests only within patience of the start.
func (s *storage) settle(ctx context.Context) {
	end := s.begun.Load().Add(patience)
	if s.settled.Load() || !time.Now().Before(end) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if s.o.Library.Ready(ctx) == nil {
		s.settled.Store(true)
	}
}
