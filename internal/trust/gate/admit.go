package gate

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/doorward/doorward/internal/trust/audit"
)

// Admit decides and charges as Enter does, and records a refusal. The record of
// what it lets through is left to the act: a message is recorded together with
// what it did, in front of the commit that does it. So of one act there is one
// record, and none that says of a message what became of another. Who gets a
// Pass here has it recorded by Append, Write or Turn before anything is done,
// and hands it to End.
func (g *Gate) Admit(a Act) (Pass, error) {
	p, err := g.admitted(a)
	if err == nil {
		p.recorded = new(atomic.Bool)
	}
	return p, err
}

// admitted decides and charges, and records a refusal.
func (g *Gate) admitted(a Act) (Pass, error) {
	d := g.policy.Load().Decide(question(a))
	if !d.Allow {
		return Pass{}, g.refuse(a, limit{rule: d.Rule, code: CodeDenied}, 0)
	}
	if a.Over != "" {
		return Pass{}, g.refuse(a, limit{rule: a.Over, code: CodeUnavailable, wait: capWait}, 0)
	}
	used := g.accountOf(&a)
	if l := g.charge(used, &a); l.rule != "" {
		return Pass{}, g.refuse(a, l, 0)
	}
	where := resource(a)
	a.Args = nil // the message may be gone before the act is
	return Pass{act: a, resource: where, used: used, rule: d.Rule}, nil
}

// Recorded reports whether a record of the admitted act was made.
func (p Pass) Recorded() bool { return p.recorded != nil && p.recorded.Load() }

// Act is what was let through, without its arguments.
func (p Pass) Act() Act { return p.act }

// Rule is what let it through.
func (p Pass) Rule() string { return p.rule }

// As is the same pass for the action that a call turned out to be, such as
// agent.send for the call of the tool send, let through by rule.
func (p Pass) As(action, resource, rule string) Pass {
	p.act.Action, p.resource, p.rule = action, resource, rule
	return p
}

func (p *Pass) line() audit.Record {
	r := record(&p.act, p.resource)
	r.Kind, r.Decision, r.Rule, r.Bytes = audit.Decision, audit.Allow, p.rule, p.act.Bytes
	return r
}

// Line is the record of an admitted act with what it is about to do, for Append
// or Write.
func (p Pass) Line(detail ...audit.Field) *audit.Record {
	r := p.line()
	r.Detail = detail
	if p.recorded != nil {
		p.recorded.Store(true)
	}
	return &r
}

// Append records admitted acts one behind the other. They are on the disk when
// it returns. An error means that none of them may be done.
func (g *Gate) Append(rs []*audit.Record) (first uint64, err error) {
	if first, err = g.log.AppendGroup(rs); err != nil {
		return 0, fmt.Errorf("recording %d acts: %w", len(rs), err)
	}
	return first, nil
}

// Write records one admitted act that changes nothing on the disk.
func (g *Gate) Write(r *audit.Record) (ref uint64, err error) {
	if ref, err = g.log.Append(r); err != nil {
		return 0, fmt.Errorf("recording %s: %w", r.Action, err)
	}
	return ref, nil
}

// Turn records that an admitted act is refused after all, under the name of the
// rule that struck.
func (g *Gate) Turn(p Pass, rule string, detail ...audit.Field) (ref uint64, err error) {
	g.refusals[turned].Add(1)
	r := p.Line(detail...)
	r.Decision, r.Rule = audit.Deny, rule
	return g.Write(r)
}

// End gives back what an admitted act was charged.
func (g *Gate) End(p Pass) { p.used.leave(&p.act) }

type passKey struct{}

// WithPass hands the pass of a call on to the server that is part of the
// daemon: it acts for nobody without one.
func WithPass(ctx context.Context, p Pass) context.Context {
	return context.WithValue(ctx, passKey{}, p)
}

// PassOf is the pass of the call that ctx belongs to.
func PassOf(ctx context.Context) (Pass, bool) {
	p, ok := ctx.Value(passKey{}).(Pass)
	return p, ok
}
