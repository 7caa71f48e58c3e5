package agent

import (
	"context"
	"time"
)

// sweepEvery is how often the book is swept when nothing is known to be due.
const sweepEvery = time.Minute

// Run does the work that no call causes, until ctx ends: it extends and ends leases of
// sessions, expires messages, and records summaries.
func (s *Server) Run(ctx context.Context) {
	tick := time.Tick(s.o.tick)
	for {
		select {
		case <-ctx.Done():
			s.endGone(ctx)
			return
		case <-s.kick:
		case <-tick:
		}
		s.round(ctx)
	}
}

// round does the work that is due now.
func (s *Server) round(ctx context.Context) {
	s.endGone(ctx)
	if due := s.sessions.due(); len(due) > 0 {
		if err := s.o.Book.Touch(ctx, due); err != nil && ctx.Err() == nil {
			s.log.Warn("leases of live sessions were not extended", "sessions", len(due), "err", err)
		}
	}
	s.stopped.flush(time.Now(), false)
	s.lulls.flush(time.Now(), false)
	s.sweep(ctx)
	s.forgetSessions(ctx)
}

// forgetSessions deletes former sessions from the book, once a minute.
func (s *Server) forgetSessions(ctx context.Context) {
	now := time.Now()
	if !s.forgetAt.rung(now, now.Add(sweepEvery)) {
		return
	}
	if err := s.o.Book.ForgetSessions(ctx, s.o.Gone); err != nil && ctx.Err() == nil {
		s.log.Warn("former sessions were not deleted", "err", err)
	}
}

// endGone ends the leases of ended sessions, also when the daemon stops.
func (s *Server) endGone(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	dead := s.sessions.dead()
	if len(dead) > 0 {
		if err := s.o.Book.End(ctx, dead); err != nil {
			s.log.Warn("leases of ended sessions were not ended", "sessions", len(dead), "err", err)
			return
		}
		if m := s.spawner(); m != nil {
			for _, name := range dead {
				m.ParentGone(name)
			}
		}
	}
	s.sessions.forget(dead)
}

// sweep sweeps the book when it is due.
func (s *Server) sweep(ctx context.Context) {
	now := time.Now()
	if !s.sweepAt.rung(now, now.Add(s.settings.sweepCap())) {
		return
	}
	next, err := s.o.Book.Sweep(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		s.log.Warn("the mailboxes were not swept", "err", err)
		s.sweepAt.by(now.Add(s.minGap)) // what is due wakes agents
	case err == nil && next > 0:
		s.sweepAt.by(time.UnixMilli(next))
	case err == nil: // more is due: continue after the other work of a round
		s.sweepAt.by(now)
		s.nudge()
	}
}

// sweepCap returns the longest time between two sweeps. A message that was sent or leased
// since the last sweep may be due before the time that the sweep returned, but not before
// the shortest configured time.
func (s *settings) sweepCap() time.Duration {
	every := sweepEvery
	for _, d := range []time.Duration{s.o.Mail.Lease, s.o.Mail.Hold} {
		if d > 0 {
			every = min(every, d)
		}
	}
	return max(every, 10*time.Millisecond)
}

// dueBy brings the next sweep forward to ms.
func (s *Server) dueBy(ms int64) {
	if ms > 0 {
		s.sweepAt.by(time.UnixMilli(ms))
	}
}
