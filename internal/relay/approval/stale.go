package approval

import "github.com/doorward/doorward/internal/trust/audit"

// stale reports that an approval does not let the act of the call through any more.
func (c Call) stale() bool { return c.Stale != nil && c.Stale() }

// pointless reports that no caller can get the act of the question done.
func (at *question) pointless() bool {
	return at.call.stale() || len(at.waiters) == 0 && at.gone()
}

// gone reports that the caller of the question cannot come back: it said so, or its program has
// ended.
func (at *question) gone() bool {
	w := at.call.Act.Who.Witness()
	return at.call.Gone != nil && at.call.Gone() || w != nil && !w.Holds()
}

// hold keeps the witness of the caller's program until letGo.
func (at *question) hold() {
	if w := at.call.Act.Who.Witness(); w != nil {
		w.Retain()
	}
}

func (at *question) letGo() {
	if w := at.call.Act.Who.Witness(); w != nil {
		w.Release()
	}
}

// Review ends the questions that are pointless.
func (q *Queue) Review() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.review()
}

// review ends the questions that are pointless, and the open ones whose time is over although
// their timers have not run. A question whose end cannot be recorded stays. The caller holds mu.
func (q *Queue) review() {
	for _, at := range q.byN {
		switch {
		case at.pointless():
			_ = q.drop(at)
		case at.state == open && !q.isOpen(at):
			_ = q.lapse(at)
		}
	}
}

// drop ends a question that is pointless. The calls that wait for it are decided again. The caller
// holds mu.
func (q *Queue) drop(at *question) error {
	why := "the caller has ended"
	if at.call.stale() {
		why = "the policy, the server or the definition has changed"
	}
	if at.state == open {
		if _, err := q.record(at, "approval.expired", nil, at.ref, audit.Field{Name: "why", Value: why}); err != nil {
			return err
		}
	}
	for _, w := range at.waiters {
		w.answer <- Answer{Stale: true}
	}
	at.waiters = nil
	q.remove(at)
	return nil
}
