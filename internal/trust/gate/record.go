package gate

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
)

// All records of decisions, refusals and findings are made in this file.
// Invariant: a record names the principal, the act and the rule that decided;
// it never holds arguments, bodies or tokens.

// made is the state of a deferred act.
type made struct {
	recorded atomic.Bool // its record was made
	waits    atomic.Bool // Waits has ended its charge
}

// Record writes the records of deferred acts, in order, and syncs them. After an error
// none of the acts may be done. first is the seq of the first record.
func (g *Gate) Record(lines ...*audit.Record) (first uint64, err error) {
	if first, err = g.log.AppendGroup(lines); err != nil {
		return 0, fmt.Errorf("recording %d acts: %w", len(lines), err)
	}
	return first, nil
}

// Record writes the record of a deferred act, with the details of its effect. The
// line is in the file when Record returns; it is not synced.
func (p Pass) Record(detail ...audit.Field) (ref uint64, err error) {
	return p.gate.write(p.Line(detail...))
}

func (g *Gate) write(r *audit.Record) (ref uint64, err error) {
	if ref, err = g.log.Append(r); err != nil {
		return 0, fmt.Errorf("recording %s: %w", r.Action, err)
	}
	return ref, nil
}

// Line returns the record of a deferred act for Gate.Record, with the details of its
// effect. The caller writes it before the effect.
func (p Pass) Line(detail ...audit.Field) *audit.Record {
	r := p.allowed()
	r.Detail = detail
	if p.made != nil {
		p.made.recorded.Store(true)
	}
	return &r
}

func (p *Pass) allowed() audit.Record {
	r := record(&p.act, p.resource)
	r.Kind, r.Decision, r.Rule, r.Bytes = audit.Decision, audit.Allow, p.rule, p.act.Bytes
	if p.act.Approval != nil {
		r.Ref = p.act.Approval.ref
	}
	return r
}

// recorded writes r, the decision of Enter, and returns the pass with its number. After an
// error the charge has ended.
func (p *Pass) recorded(r audit.Record) (_ Pass, err error) {
	if p.Ref, err = p.gate.log.Append(&r); err != nil {
		p.used.leave(&p.act)
		return Pass{}, unrecorded(p.act, p.rule, err)
	}
	return *p, nil
}

// Recorded reports whether a record of the deferred act was made.
func (p Pass) Recorded() bool { return p.made != nil && p.made.recorded.Load() }

// Refuse records that an act is refused by a rule of its server or its route, without a
// decision of policy.
func (g *Gate) Refuse(a Act, rule string, code int, wait time.Duration) *Refusal {
	return g.refuse(a, limit{rule: rule, code: code, wait: wait}, 0)
}

// Refuse records that an act is refused after Enter let it through. A deferred act has no
// record yet, and the denial is its only one. Any other act has a record that it was
// allowed: it stays, and the denial is a second record that refers to it. The caller
// still calls Leave.
func (p Pass) Refuse(rule string, code int, detail ...audit.Field) *Refusal {
	if p.made == nil {
		return p.gate.refuse(p.act, limit{rule: rule, code: code, wait: waitFor(code)}, p.Ref)
	}
	p.gate.refusals.turned.Add(1)
	r := p.Line(detail...)
	r.Decision, r.Rule = audit.Deny, rule
	ref, err := p.gate.write(r)
	return &Refusal{Code: code, Ref: ref, Rule: rule, Err: err, Who: p.act.Who}
}

// waitFor returns the wait in a refusal with this code; 0: none.
func waitFor(code int) time.Duration {
	if code == CodeUnavailable {
		return capWait
	}
	return 0
}

// refuse records a refusal; ref is the seq of the decision that let the act begin, or 0.
func (g *Gate) refuse(a Act, l limit, ref uint64) *Refusal {
	g.refusals.of(l.code).Add(1)
	r := record(&a, resource(&a))
	r.Kind, r.Decision, r.Rule, r.Bytes, r.Ref = audit.Decision, audit.Deny, l.rule, a.Bytes, ref
	seq, err := g.log.Append(&r)
	if err != nil {
		return unrecorded(a, l.rule, err)
	}
	refusal := &Refusal{Code: l.code, Ref: seq, Rule: l.rule, Wait: l.wait, Who: a.Who}
	if l.code == CodeDenied {
		refusal.Asked = question(&a)
	}
	return refusal
}

func unrecorded(a Act, rule string, err error) *Refusal {
	return &Refusal{Code: CodeUnavailable, Rule: rule, Who: a.Who, Err: fmt.Errorf("recording %s: %w", a.Action, err)}
}

// Finding returns the record of a content rule that matched n times in the messages of an
// act. It holds the name of the rule, never the text. ref is the seq of the act's
// decision, or 0 for a message that a server sent without a request.
func Finding(a Act, ref uint64, rule, result string, n int64) *audit.Record {
	r := record(&a, resource(&a))
	r.Kind, r.Source, r.Rule, r.Result, r.Count, r.Ref = audit.Event, "scan", rule, result, n, ref
	return &r
}

func record(a *Act, resource string) audit.Record {
	return audit.Record{Source: cmp.Or(a.Source, "gate"), Who: a.Who, Session: a.Session, Action: a.Action, Resource: resource, Count: a.servers}
}

func resource(a *Act) string {
	if a.Name == "" {
		return a.Server
	}
	return a.Server + "/" + a.Name
}
