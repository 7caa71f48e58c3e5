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

// owedMost bounds the records that wait; beyond it the log alone says that a
// session has ended.
const owedMost = 1000

// unseen is how long a session may live before what made it is remembered.
const unseen = time.Minute

// owed are the records of ends that could not be made yet. An end takes rights
// away, and is the one act that goes before its record.
type owed struct {
	mu   sync.Mutex
	wait []*audit.Record
}

// ends ends the sessions whose maker holds no more, and records it.
type ends struct {
	o           *Options
	log         *slog.Logger
	credentials *credentials
	owed        owed
}

// owe makes the record of an end that the database did not take with it, now or
// later.
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

// pay makes the records that wait, in their order.
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

// sweepSessions ends the sessions whose maker holds no more, and makes the
// records that wait.
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

// revoke ends the sessions that stand on nothing any more, so that their rows
// know: a token of the same name may come.
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

// byToken: what made the session is in its row, and not in memory alone.
func byToken(found *session.Session) bool {
	kind, _, _ := principal.Parse(found.Subject)
	return kind == principal.KindToken
}

// revoked is the record of a session that has lost what it stood on.
func revoked(s *session.Session) *audit.Record {
	return &audit.Record{Kind: audit.Event, Source: source, Action: ServerName + ".session.revoked", Resource: ServerName + "/session", Detail: sessionFields(s)}
}
