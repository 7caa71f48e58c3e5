package approval

import (
	"errors"
	"time"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Settle decides question n in the name of by. preview is the digest that the operator was
// shown; empty: it is not compared. The error is ErrSettled, ErrVerdict, or that of the
// record. A question whose decision cannot be recorded stays open.
func (q *Queue) Settle(by *principal.Principal, n uint64, preview string, v Verdict) error {
	v.For = orOnce(v.For)
	if !v.Approve && len(v.Why) > mostWhy || v.Approve && lifeOf(v.For) == unknownLife {
		return ErrVerdict
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	review(q)
	at := q.byN[n]
	if at == nil || !q.isOpen(at) || preview != "" && preview != at.shown.Preview {
		return ErrSettled
	}
	if !v.Approve {
		return q.deny(at, "approval.denied", by, plaintext.Line(v.Why))
	}
	return q.approve(at, by, v)
}

// approve gives the approval to one caller and makes the others ask again. If no caller
// waits, it is kept for the next one. The caller holds mu.
func (q *Queue) approve(at *question, by *principal.Principal, v Verdict) error {
	life, detail := v.For, []audit.Field{{Name: "for", Value: v.For}}
	if v.Passkey != "" {
		detail = append(detail, audit.Field{Name: "passkey", Value: v.Passkey})
	}
	ref, err := q.record(at, "approval.granted", by, at.ref, detail...)
	if err != nil {
		return err
	}
	q.met(at.call)
	if life != Once {
		if err := q.grant(at, life, ref); err != nil {
			_, unsaid := q.record(at, "approval.revoked", by, ref, audit.Field{Name: "reason", Value: "it could not be saved"})
			return errors.Join(err, unsaid)
		}
	}
	a := Answer{Approval: at.call.Held.Binding.Approve(at.shown.Expires, ref), Run: string(at.call.Run), Ref: ref}
	at.state, at.answer = approved, a
	waiters := at.waiters
	at.waiters = nil
	given := false
	for _, w := range waiters {
		switch {
		case !given && !w.left():
			given = true
			w.answer <- a
		default:
			w.answer <- Answer{}
		}
	}
	if given {
		q.remove(at)
	}
	return nil
}

// deny answers every caller, or the next one if none waits. The caller holds mu.
func (q *Queue) deny(at *question, what string, by *principal.Principal, why string) error {
	ref, err := q.record(at, what, by, at.ref)
	if err != nil {
		return err
	}
	at.state, at.answer = denied, Answer{Denied: true, Why: why, Ref: ref}
	for _, w := range at.waiters {
		w.answer <- at.answer
	}
	if len(at.waiters) > 0 {
		q.remove(at)
	}
	at.waiters = nil
	return nil
}

// expire ends a question that was not decided, or whose caller did not come back.
func (q *Queue) expire(at *question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byN[at.shown.N] != at {
		return
	}
	if q.lapse(at) != nil {
		at.timer.Reset(time.Second) // it stays open until the expiry is recorded
	}
}

// lapse ends a question whose time is over. After an error it stays. The caller holds mu.
func (q *Queue) lapse(at *question) error {
	if at.state == open {
		if err := q.deny(at, "approval.expired", nil, "the operator did not answer in time"); err != nil {
			return err
		}
	}
	q.remove(at)
	return nil
}

// Close ends every question. No call that waits is run.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, at := range q.byN {
		if at.state == open {
			_ = q.deny(at, "approval.expired", nil, "Doorward was stopped")
		}
		q.remove(at)
	}
}
