package deliver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/downstream/credential"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/instructions/watermark"
)

var (
	// ErrNotFound: there is no such text for this reader, whatever there is for
	// others.
	ErrNotFound = errors.New("no such text for this reader")
	// ErrStore: the store is not to be had, and the reader was given nothing
	// before.
	ErrStore = errors.New("the instruction store is not available")
	// ErrEnded: the reader's session has ended since the door looked.
	ErrEnded = errors.New("the session has ended")
)

const (
	// patience is the longest that anybody waits for the store, and how long after
	// the start somebody does. With what comes after, a greeting takes less than
	// the two seconds that it may.
	patience = 1500 * time.Millisecond
	// sweepEvery is within the five seconds in which what belongs to an ended
	// session has to be gone, whatever was missed before.
	sweepEvery = 3 * time.Second
	// refsKept is how long a ref is known, as long as the row of its session.
	refsKept = 30 * 24 * time.Hour
)

// Server delivers. Its methods may be called at once by many.
type Server struct {
	o      Options
	log    *slog.Logger
	conns  conns
	ears   ears
	counts counts
	web    web

	storage     storage
	credentials credentials
	readers     readers
	deliveries  deliveries
	leaks       leaks
	ends        ends

	kick    chan struct{} // somebody may have to be told of something
	closing context.Context
	close   context.CancelFunc
}

// New makes the server, and begins to read the record. Run has to run beside it.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, log: o.Log, kick: make(chan struct{}, 1)}
	s.assemble()
	if o.Library == nil {
		s.storage.late = newLate(o.Wanted, o.Now())
		s.o.Library, s.o.Sessions = s.storage.late, s.storage.late
	}
	s.storage.begins()
	s.closing, s.close = context.WithCancel(context.Background())
	s.leaks.recall = recall{until: o.Now(), read: make(chan struct{}), kinds: make(map[watermark.Delivery]*library.Delivered)}
	if o.Records == nil || o.Refs == nil {
		close(s.leaks.recall.read)
	} else {
		go s.leaks.recollect(s.closing, o.Records(s.closing))
	}
	return s
}

// Run tells those who listen of what changes, and clears away what ended
// sessions have left, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	var files sync.WaitGroup
	files.Go(func() { s.ends.sweepFiles(ctx) })    // a slow file system delays no message
	files.Go(func() { s.ends.sweepSessions(ctx) }) // nor does a slow database
	defer files.Wait()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
			s.spread()
		case <-tick.C:
			s.sweep()
		}
	}
}

// Close ends what waits: connections are over, and streams. It returns at once.
func (s *Server) Close() {
	s.close()
	s.ears.shut()
}

// Changed tells the server that the set or the state of the library has changed.
// Removed documents are unavailable at once; listeners are told soon. It returns
// at once.
func (s *Server) Changed() {
	if set, state := s.o.Library.Set(); state.OK && set != nil {
		s.readers.cache.renew(set)
	}
	s.nudge()
}

// Policy is told that the policy has changed: what was decided before does not
// count any more. It returns at once.
func (s *Server) Policy() {
	s.readers.rules.Add(1)
	s.nudge()
}

// Ended is told that a session of delivery is over: what it was given is gone
// when Ended returns, and its streams end.
func (s *Server) Ended(over session.Session) {
	s.readers.cache.drop(over.ID)
	s.conns.forget(over.ID)
	s.ears.revoke(over.ID)
	s.web.forget(over.ID)
	s.nudge()
}

// nudge has Run look at once.
func (s *Server) nudge() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// spread tells the listeners whose view has changed.
func (s *Server) spread() {
	for _, c := range s.conns.all() {
		c.look()
	}
	s.ears.look(s.readers.revision)
}

// sweep removes state without an owner.
func (s *Server) sweep() {
	now := s.o.Now()
	s.readers.cache.sweep(now, s.credentials.lives)
	s.credentials.bearers.sweep(now)
	if s.o.Refs != nil {
		s.o.Refs.Prune(now.Add(-refsKept))
	}
}

// sweepFiles removes the session files of sessions that are over.
func (s *ends) sweepFiles(ctx context.Context) {
	if s.o.RuntimeDir == "" {
		return
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for last := ""; ; {
		_, err := credential.Sweep(s.o.RuntimeDir, func(id string) bool { return !s.credentials.lives(id) })
		if err != nil && err.Error() != last {
			last = err.Error()
			s.log.Warn("files of ended sessions were not removed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lives reports whether a session of delivery has not ended, and the bearer
// token that it was made with, if any, is still good.
func (s *credentials) lives(id string) bool {
	found, ok := s.o.Sessions.Find(id)
	return ok && found.Ended.IsZero() && s.o.Now().Before(found.Expires.Add(session.Tolerance)) && s.stands(&found)
}

// Used reports whether there is a store at all.
func (s *Server) Used() bool { return s.storage.Used() }

// Away reports whether the store is not there yet.
func (s *Server) Away() bool { return s.storage.Away() }

// Used reports whether there is a store at all: a directory that is there, one
// that should be, or a remote one.
func (s *storage) Used() bool {
	_, state := s.o.Library.Set()
	return !state.Unused
}

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
