package deliver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/downstream/credential"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/instructions/watermark"
)

// Server is the built-in server. Its methods are safe for concurrent use.
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

	kick    chan struct{} // makes Run look for changes at once
	closing context.Context
	close   context.CancelFunc
}

// New makes the server, and begins to read the audit log. Run has to run for its whole
// life.
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

// assemble connects the parts of the server, which share its options.
func (s *Server) assemble() {
	s.storage.o = &s.o
	s.credentials.o, s.credentials.web = &s.o, &s.web
	s.readers.o, s.readers.storage, s.readers.credentials = &s.o, &s.storage, &s.credentials
	s.deliveries.o, s.deliveries.log, s.deliveries.readers, s.deliveries.counts = &s.o, s.log, &s.readers, &s.counts
	s.leaks.o, s.leaks.log, s.leaks.counts = &s.o, s.log, &s.counts
	s.ends.o, s.ends.log, s.ends.credentials = &s.o, s.log, &s.credentials
}

// Run tells listeners of changes, and removes the state of ended sessions, until ctx
// ends.
func (s *Server) Run(ctx context.Context) {
	var files sync.WaitGroup
	files.Go(func() { s.ends.sweepFiles(ctx) })    // separate, so that a slow file system delays no message
	files.Go(func() { s.ends.sweepSessions(ctx) }) // and neither does a slow database
	defer files.Wait()
	tick := time.Tick(sweepEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
			s.spread()
		case <-tick:
			s.sweep()
		}
	}
}

// Close ends all connections and streams. It returns at once.
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

// Policy tells the server that the policy has changed: earlier decisions do not count any
// more. It returns at once.
func (s *Server) Policy() {
	s.readers.rules.Add(1)
	s.nudge()
}

// Ended tells the server that a delivery session has ended: its views are removed when
// Ended returns, and its streams end.
func (s *Server) Ended(over session.Session) {
	s.readers.cache.drop(over.ID)
	s.conns.forget(over.ID)
	s.ears.revoke(over.ID)
	s.web.forget(over.ID)
	s.nudge()
}

// nudge makes Run look for changes at once.
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

// sweep removes state whose owner has ended or expired.
func (s *Server) sweep() {
	now := s.o.Now()
	s.readers.cache.sweep(now, s.credentials.lives)
	s.credentials.bearers.sweep(now)
	if s.o.Refs != nil {
		s.o.Refs.Prune(now.Add(-refsKept))
	}
}

// sweepFiles removes the session files of ended sessions.
func (s *ends) sweepFiles(ctx context.Context) {
	if s.o.RuntimeDir == "" {
		return
	}
	tick := time.Tick(sweepEvery)
	for last := ""; ; {
		_, err := credential.Sweep(s.o.RuntimeDir, func(id string) bool { return !s.credentials.lives(id) })
		if err != nil && err.Error() != last {
			last = err.Error()
			s.log.Warn("files of ended sessions were not removed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// Used reports whether a store is configured.
func (s *Server) Used() bool { return s.storage.Used() }

// Away reports whether the store is not there yet.
func (s *Server) Away() bool { return s.storage.Away() }

// Lacks sets the reason for which the store is not there yet, for the operator.
func (s *Server) Lacks(reason string) {
	if s.storage.late == nil {
		return
	}
	now := *s.storage.late.state.Load()
	if now.Unused {
		return
	}
	now.Reason = reason
	s.storage.late.state.Store(&now)
}

// Equip gives the server its store. Run has to run from then on, and Again has to be
// called when listeners may exist.
func (s *Server) Equip(st Stored) {
	s.storage.late.there.Store(&st)
	s.storage.begins()
	s.conns.afresh()
	s.nudge()
}

// Again wakes the listeners from before the store was open, which could not be told apart
// at that time: each is told of the resources that it named. The relay has told them
// before that all lists have changed. A listen with a token that could not be verified
// ends, and its client opens it again. Only the first call after Equip has an effect.
func (s *Server) Again() {
	if s.storage.late == nil || s.storage.Away() {
		return
	}
	s.storage.late.again.Do(func() {
		s.conns.again()
		close(s.storage.late.begin)
	})
}

// Missing counts the requests that needed a token and showed none.
func (s *Server) Missing() uint64 { return s.web.missing.Load() }
