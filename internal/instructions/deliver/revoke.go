package deliver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// owedMost bounds the records that wait; the end of a session beyond it is only logged.
const owedMost = 1000

// unseen is the age up to which a session may have no maker in memory: the maker is
// stored after the session is made.
const unseen = time.Minute

// owed holds the records of ends that could not be written yet. The end of a session only
// takes rights away, so it is the one act that is done before its record.
type owed struct {
	mu   sync.Mutex
	wait []*audit.Record
}

// ends ends the sessions whose maker is not valid any more, and records it.
type ends struct {
	o           *Options
	log         *slog.Logger
	credentials *credentials
	owed        owed
}

// owe writes the record of an end that the database could not save together with it, now
// or later.
func (s *ends) owe(r *audit.Record) {
	s.owed.mu.Lock()
	if len(s.owed.wait) < owedMost {
		s.owed.wait = append(s.owed.wait, r)
	} else {
		s.log.Error("the end of a session was not recorded: too many records are waiting", "action", r.Action)
	}
	s.owed.mu.Unlock()
	s.pay()
}

// pay writes the waiting records, in their order.
func (s *ends) pay() {
	s.owed.mu.Lock()
	defer s.owed.mu.Unlock()
	for len(s.owed.wait) > 0 {
		if _, err := s.o.Gate.Record(s.owed.wait[0]); err != nil {
			return
		}
		s.owed.wait = s.owed.wait[1:]
	}
}

// sweepSessions ends the sessions whose maker is not valid any more, and writes the
// waiting records.
func (s *ends) sweepSessions(ctx context.Context) {
	tick := time.Tick(sweepEvery)
	for {
		select {
		case <-ctx.Done():
			s.pay() // what waits after this is lost with the process
			return
		case <-tick:
			s.revoke(ctx)
			s.pay()
		}
	}
}

// revoke ends the sessions whose maker is not valid any more, in their rows too: another
// token may get the same name.
func (s *ends) revoke(ctx context.Context) {
	for _, found := range s.o.Sessions.Sessions() {
		if !found.Ended.IsZero() || s.credentials.stands(&found) || s.o.Now().Sub(found.Issued) < unseen && !byToken(&found) {
			continue
		}
		ended, err := s.o.Sessions.End(ctx, found.ID, session.ReasonRevoked, func(e *session.Session) any { return revoked(e) })
		if errors.Is(err, session.ErrUnsaved) {
			s.owe(revoked(ended))
		}
	}
}

// byToken reports whether the maker of a session is in its row, and not only in memory.
func byToken(found *session.Session) bool {
	kind, _, _ := principal.Parse(found.Subject)
	return kind == principal.KindToken
}

// revoked returns the record of a session that ended because of its maker.
func revoked(s *session.Session) *audit.Record {
	return &audit.Record{Kind: audit.Event, Source: source, Action: ServerName + ".session.revoked", Resource: ServerName + "/session", Detail: sessionFields(s)}
}
