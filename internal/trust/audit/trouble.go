package audit

// The cost of a failing log. Invariant: what was refused or dropped is reported
// by the first records after it.

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"
)

// trouble is what could not be written since the last write that succeeded.
type trouble struct {
	why     error // the last write failed; nil: it did not
	refused int64 // Appends that failed
	lost    int64 // Later records dropped
}

// over notes a write, which also reported the numbers of refused and lost records.
func (t *trouble) over(log *slog.Logger, refused, lost int64, wrote bool) {
	if !wrote {
		return
	}
	if t.why != nil {
		log.Warn("audit log can be written again", "refused", refused, "lost", lost)
		t.why = nil
	}
	t.refused -= refused
	t.lost -= lost
}

// began notes that g was not written, and returns the error for its Appends. The
// Later records of g go into the queue again, in front of those of next.
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

// notices are the bodies of the events that say what trouble has cost; they
// come first when there is space again.
func (t *trouble) notices(now func() time.Time) (bodies []body) {
	if t.refused > 0 {
		bodies = append(bodies, event(now(), Record{Action: "audit.refused", Count: t.refused, Reason: "records that could not be written; their acts were refused"}))
	}
	if t.lost > 0 {
		bodies = append(bodies, event(now(), Record{Action: "audit.lost", Count: t.lost, Reason: "outcomes and events dropped while the log could not be written"}))
	}
	return bodies
}

// event returns the body of an event about the log itself.
func event(now time.Time, r Record) body {
	r.Kind, r.Source = Event, "audit"
	return appendBody(nil, &r, now)
}

// state is what trouble means for who asks; err is what is final.
func (t *trouble) state(s State, final error) State {
	s.State, s.Refused, s.Lost = StateOK, uint64(t.refused), uint64(t.lost)
	err := cmp.Or(final, t.why)
	if err == nil {
		return s
	}
	s.State, s.Reason = StateFailed, err.Error()
	if isSpace(err) && final == nil {
		s.State = StateFull
	}
	return s
}
