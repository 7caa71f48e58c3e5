package gate

import (
	"context"

	"github.com/doorward/doorward/internal/trust/audit"
)

// Pass is the proof that the gate let an act through. Every Pass ends with Leave.
// Invariant: a Pass exists only for an act that policy and the limits allowed.
type Pass struct {
	Ref      uint64    // seq of the decision's record; 0 for a deferred act
	Given    *Approval // of the act that Hold names; nil: none was given
	gate     *Gate
	act      Act
	resource string
	used     *account
	rule     string // that let the act through
	servers  []string
	made     *made // shared by all copies of the pass of a deferred act; nil: Enter recorded the decision
}

// Act returns the act that was let through, without its arguments.
func (p Pass) Act() Act { return p.act }

// Servers returns the servers of Act.Each that policy allows, in the same order.
func (p Pass) Servers() []string { return p.servers }

// Rule returns the name of the permit that let the act through.
func (p Pass) Rule() string { return p.rule }

// As returns the same pass for the action that a call amounts to, such as agent.send for
// a call of the tool send, let through by rule.
func (p Pass) As(action, resource, rule string) Pass {
	p.act.Action, p.resource, p.rule = action, resource, rule
	return p
}

// Waits ends the charge of a deferred act that waits for an event and has little left to
// do afterwards. The act no longer counts as under way. The caller of Waits bounds how
// many acts wait.
func (p Pass) Waits() {
	if p.made != nil && !p.made.waits.Swap(true) {
		p.used.leave(&p.act)
	}
}

// Leave ends an act and its charge. It is called once, on any copy of the pass: after a
// second call the principal could exceed its limit. It must not be called on the zero
// Pass. For an act whose decision Enter recorded, it records the outcome: result is one
// constant word, bytes the size of the answer. A deferred act has no second record.
func (p Pass) Leave(result string, bytes int64) {
	if p.made == nil || !p.made.waits.Load() {
		p.used.leave(&p.act)
	}
	if p.made != nil {
		return
	}
	r := record(&p.act, p.resource)
	r.Kind, r.Ref, r.Result, r.Bytes = audit.Outcome, p.Ref, result, bytes
	p.gate.log.Later(&r)
}

type passKey struct{}

// WithPass returns a context that carries the pass of a call to a built-in
// server. Such a server does not act without one.
func WithPass(ctx context.Context, p Pass) context.Context {
	return context.WithValue(ctx, passKey{}, p)
}

// PassOf returns the pass of the call that ctx belongs to.
func PassOf(ctx context.Context) (Pass, bool) {
	p, ok := ctx.Value(passKey{}).(Pass)
	return p, ok
}
