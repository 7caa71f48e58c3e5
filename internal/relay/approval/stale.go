package approval

import "github.com/doorward/doorward/internal/trust/audit"

// pointless reports that no caller can get the act of the question done.
func (at *question) pointless() bool {
	return at.call.stale() || len(at.waiters) == 0 && at.gone()
}

// Review ends the questions that are pointless.
func (q *Queue) Review() {
	q.mu.Lock()
	defer q.mu.Unlock()
	review(q)
}

// review ends the questions that are pointless, and the open ones whose time is over although
// their timers have not run. A question whose end cannot be recorded stays. The caller holds mu of q.
func review(q *Queue) {
	for _, at := range q.byN {
		switch {
		case at.pointless():
			_ = drop(q, at)
		case at.state == open && !q.isOpen(at):
			_ = q.lapse(at)
		}
	}
}

// drop ends a question that is pointless. The calls that wait for it are decided again. The caller
// holds mu of q.
func drop(q *Queue, at *question) error {
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
