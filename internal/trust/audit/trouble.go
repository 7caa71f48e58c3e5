package audit

// Failed writes. Invariant: the numbers of refused and dropped records are reported
// by the first records written afterwards.

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

// trouble counts the records that could not be written since the last successful write.
type trouble struct {
	why     error // the error of the last write; nil: it succeeded
	refused int64 // Appends that failed
	lost    int64 // Later records dropped
}

// over notes a successful write, which also reported that many refused and lost
// records.
func (t *trouble) over(log *slog.Logger, refused, lost int64) {
	if t.why != nil {
		log.Warn("audit log can be written again", "refused", refused, "lost", lost)
		t.why = nil
	}
	t.refused -= refused
	t.lost -= lost
}

// began notes that writing g failed with err, and returns the error for its Appends. The
// Later records of g are put in front of the records of next.
func (t *trouble) began(log *slog.Logger, g, next *group, err error) error {
	if t.why == nil {
		log.Error("audit log cannot be written; acts that need a record are refused", "error", err)
	}
	t.why = err
	for _, it := range g.items {
		if !it.later {
			t.refused++
		}
	}
	t.lost += g.keepLater(next, laterLimit)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// lasting returns the error of the last write; nil: it succeeded, or only space is lacking.
func (t *trouble) lasting() error {
	if durable.NoSpace(t.why) {
		return nil
	}
	return t.why
}

// notices adds the events that report the numbers of refused and lost records to g. They
// are written before all other records.
func (t *trouble) notices(g *group, now func() time.Time) {
	if t.refused > 0 {
		g.add(event(now(), Record{Action: "audit.refused", Count: t.refused, Reason: "records that could not be written; their acts were refused"}), true)
	}
	if t.lost > 0 {
		g.add(event(now(), Record{Action: "audit.lost", Count: t.lost, Reason: "outcomes and events dropped while the log could not be written"}), true)
	}
}

// event returns the body of an event about the log itself.
func event(now time.Time, r Record) body {
	r.Kind, r.Source = Event, "audit"
	return makeBody(nil, &r, now)
}

// state fills in s. final is the error of a failed sync, or nil.
func (t *trouble) state(s State, final error) State {
	s.State, s.Refused, s.Lost = StateOK, uint64(t.refused), uint64(t.lost)
	err := cmp.Or(final, t.why)
	if err == nil {
		return s
	}
	s.State, s.Reason = StateFailed, err.Error()
	if durable.NoSpace(err) && final == nil {
		s.State = StateFull
	}
	return s
}
