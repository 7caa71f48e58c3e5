package deliver

import (
	"context"
	"sync/atomic"
	"time"
)

// storage is what delivery knows of its store: whether it is there, and since when.
type storage struct {
	o    *Options
	late *late // nil: the store was there from the start

	begun   atomic.Pointer[time.Time] // when the library began its first look, about
	settled atomic.Bool               // it has had it
}

// Used reports whether there is a store at all: a directory that is there, one
// that should be, or a remote one.
func (s *storage) Used() bool {
	_, state := s.o.Library.Set()
	return !state.Unused
}

// Away reports whether the store is not there yet.
func (s *storage) Away() bool { return s.late != nil && s.late.there.Load() == nil }

// begins notes that the library begins now.
func (s *storage) begins() {
	now := time.Now()
	s.begun.Store(&now)
}

// settle waits for the library's first look, or its first attempt at another
// store, but not for long: after it the state says all. That time is one for all
// requests together, so that a store which answers slowly, or never, costs them
// a moment at the start and nothing later.
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
