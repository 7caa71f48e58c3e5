// Package gate is the choke point: whatever a caller can cause, it causes
// through Enter, which decides, records, and only then lets the act happen.
// Leave records how the act ended.
//
// Invariant: no act without a decision in the audit log. When the log cannot
// be written, Enter refuses.
package gate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// JSON-RPC codes of refusals, from the contract's table.
const (
	CodeDenied      = 1403
	CodeRate        = 1429
	CodeUnavailable = 1503
)

// Refusal is why an act may not happen. Ref is the seq of its audit record,
// zero when none could be written.
type Refusal struct {
	Code int
	Ref  uint64
	Rule string
	Wait time.Duration // when to ask again, where that makes sense
	Err  error         // for the operator; nil when policy or a limit decided

	Asked policy.Request // when policy decided; valid as long as the act's message
}

// RetryAfter is Wait in whole seconds, rounded up.
func (r *Refusal) RetryAfter() int { return int((r.Wait + time.Second - 1) / time.Second) }

func (r *Refusal) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("refused (%d): %v", r.Code, r.Err)
	}
	return fmt.Sprintf("refused (%d) by %s", r.Code, r.Rule)
}

func (r *Refusal) Unwrap() error { return r.Err }

// Act is what somebody wants to do.
type Act struct {
	Who     *principal.Principal
	Session string // a digest, may be empty
	Action  string
	Server  string
	Name    string
	Bytes   int64 // size of the message that asks for it

	Args      []byte // of a call, raw; for the decision, never for the record
	Confirmed bool   // see policy.Request

	Kind Kind
	With *Charge // several acts that count as one; nil: it counts by itself
	Over string  // a cap that this act would exceed, kept elsewhere; empty: none

	Source string // of its records; empty: gate

	// Delivery is the instruction session whose token came with the message,
	// checked at the door; empty: none came.
	Delivery string
}

// Pass is a decision that let an act through; hand it to Leave, or one of
// Admit to End.
type Pass struct {
	Ref      uint64
	act      Act
	resource string
	used     *account
	rule     string       // what let it through
	recorded *atomic.Bool // of one of Admit
}

// Gate decides and records. Its methods are safe for concurrent use.
type Gate struct {
	policy   atomic.Pointer[policy.Set]
	log      *audit.Log
	limits   Limits
	accounts sync.Map             // what is charged -> *account
	clock    func() time.Duration // since the gate was made; it never goes back
	refusals [len(classes)]atomic.Uint64
}

// classes are the kinds of refusal that are counted.
var classes = [...]string{"policy", "rate", "limit", "turned"}

// turned is the class of what was admitted and refused by its server.
const turned = 3

func classOf(code int) int {
	switch code {
	case CodeRate:
		return 1
	case CodeUnavailable:
		return 2
	}
	return 0
}

// Refused counts the refusals since the start, by kind: policy, rate, limit, or
// turned for what the server itself has refused.
func (g *Gate) Refused() map[string]uint64 {
	out := make(map[string]uint64, len(classes))
	for i, c := range classes {
		out[c] = g.refusals[i].Load()
	}
	return out
}

// New makes a gate.
func New(set *policy.Set, log *audit.Log, limits Limits) *Gate {
	start := time.Now()
	g := &Gate{log: log, limits: limits, clock: func() time.Duration { return time.Since(start) }}
	g.policy.Store(set)
	return g
}

// SetPolicy replaces the policy for acts that enter from now on.
func (g *Gate) SetPolicy(set *policy.Set) { g.policy.Store(set) }

// Allows answers without a record: for filtering lists, whose own request
// has entered, and for `explain`.
func (g *Gate) Allows(q policy.Request) policy.Decision { return g.policy.Load().Decide(q) }

// Enter decides and records. A *Refusal means that the act must not happen.
// Policy is asked first: what it denies costs nothing of the limits, and shows
// nothing of what is used of them.
func (g *Gate) Enter(a Act) (Pass, error) {
	p, err := g.admitted(a)
	if err != nil {
		return Pass{}, err
	}
	r := p.line()
	if p.Ref, err = g.log.Append(&r); err != nil {
		p.used.leave(&p.act)
		return Pass{}, unrecorded(a, p.rule, err)
	}
	return p, nil
}

// refuse records a refusal; ref is the decision that let the act begin, or 0.
func (g *Gate) refuse(a Act, l limit, ref uint64) *Refusal {
	g.refusals[classOf(l.code)].Add(1)
	r := record(&a, resource(a))
	r.Kind, r.Decision, r.Rule, r.Bytes, r.Ref = audit.Decision, audit.Deny, l.rule, a.Bytes, ref
	seq, err := g.log.Append(&r)
	if err != nil {
		return unrecorded(a, l.rule, err)
	}
	refusal := &Refusal{Code: l.code, Ref: seq, Rule: l.rule, Wait: l.wait}
	if l.code == CodeDenied {
		refusal.Asked = question(a)
	}
	return refusal
}

func unrecorded(a Act, rule string, err error) *Refusal {
	return &Refusal{Code: CodeUnavailable, Rule: rule, Err: fmt.Errorf("recording %s: %w", a.Action, err)}
}

// Refuse is for a limit that strikes before policy is asked: the refusal is
// recorded under the limit's name.
func (g *Gate) Refuse(a Act, rule string, wait time.Duration) *Refusal {
	return g.refuse(a, limit{rule: rule, code: CodeUnavailable, wait: wait}, 0)
}

// Deny is Refuse for a rule that is no limit.
func (g *Gate) Deny(a Act, rule string) *Refusal {
	return g.refuse(a, limit{rule: rule, code: CodeDenied}, 0)
}

// Overrule is for a limit that strikes after the act was let in. It ends the
// act with result, and the refusal is recorded with a reference to what had
// let it in.
func (g *Gate) Overrule(p Pass, rule, result string) *Refusal {
	g.Leave(p, result, 0)
	return g.refuse(p.act, limit{rule: rule, code: CodeUnavailable, wait: capWait}, p.Ref)
}

// Leave records how an act ended, once for each Pass: result is one constant
// word, bytes the size of what went back.
func (g *Gate) Leave(p Pass, result string, bytes int64) {
	p.used.leave(&p.act)
	r := record(&p.act, p.resource)
	r.Kind, r.Ref, r.Result, r.Bytes = audit.Outcome, p.Ref, result, bytes
	g.log.Later(&r)
}

func question(a Act) policy.Request {
	return policy.Request{Who: a.Who, Action: a.Action, Server: a.Server, Name: a.Name, Args: a.Args, Confirmed: a.Confirmed}
}

func record(a *Act, resource string) audit.Record {
	source := a.Source
	if source == "" {
		source = "gate"
	}
	return audit.Record{Source: source, Who: a.Who, Session: a.Session, Action: a.Action, Resource: resource}
}

func resource(a Act) string {
	if a.Name == "" {
		return a.Server
	}
	return a.Server + "/" + a.Name
}
