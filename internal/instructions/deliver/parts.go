package deliver

import (
	"log/slog"
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

// credentials judges what proves a reader: session tokens, bearer tokens, and the
// principals behind them.
type credentials struct {
	o       *Options
	web     *web
	bearers bearers
}

// readers says who reads and what of the set each may have now.
type readers struct {
	o           *Options
	storage     *storage
	credentials *credentials
	cache       cache
	rules       atomic.Uint64 // counts the policies
}

// deliveries makes texts for readers, each with its decision and its record.
type deliveries struct {
	o       *Options
	log     *slog.Logger
	readers *readers
	counts  *counts
	failed  atomic.Int64 // when a ref was last not noted, in Unix seconds
}

// leaks finds the refs of delivered texts in what leaves.
type leaks struct {
	o      *Options
	log    *slog.Logger
	counts *counts
	recall recall
}

// ends ends the sessions whose maker holds no more, and records it.
type ends struct {
	o           *Options
	log         *slog.Logger
	credentials *credentials
	owed        owed
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
