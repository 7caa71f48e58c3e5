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

	"github.com/doorward/doorward/internal/audit"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/principal"
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
	Err  error // for the operator; nil when policy decided
}

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
}

// Pass is a decision that let an act through; hand it to Leave.
type Pass struct {
	Ref      uint64
	act      Act
	resource string
}

// Gate decides and records. Its methods are safe for concurrent use.
type Gate struct {
	policy  atomic.Pointer[policy.Set]
	log     *audit.Log
	rate    float64              // calls per second and principal; 0: no limit
	buckets sync.Map             // principal's name -> *atomic.Int64, see withinRate
	clock   func() time.Duration // since the gate was made; it never goes back
}

// New makes a gate. callsPerSecond limits each principal; 0 means no limit.
func New(set *policy.Set, log *audit.Log, callsPerSecond int) *Gate {
	start := time.Now()
	g := &Gate{log: log, rate: float64(callsPerSecond), clock: func() time.Duration { return time.Since(start) }}
	g.policy.Store(set)
	return g
}

// SetPolicy replaces the policy for acts that enter from now on.
func (g *Gate) SetPolicy(set *policy.Set) { g.policy.Store(set) }

// Allows answers without a record: for filtering lists, whose own request
// has entered, and for `explain`.
func (g *Gate) Allows(q policy.Request) policy.Decision { return g.policy.Load().Decide(q) }

// Enter decides and records. A *Refusal means that the act must not happen.
func (g *Gate) Enter(a Act) (Pass, error) {
	d := g.policy.Load().Decide(question(a))
	code := CodeDenied
	if d.Allow && !g.withinRate(a.Who) {
		d = policy.Decision{Rule: "limits.calls_per_second"}
		code = CodeRate
	}
	where := resource(a)
	r := record(a, where)
	r.Kind, r.Decision, r.Rule, r.Bytes = audit.Decision, verdict(d.Allow), d.Rule, a.Bytes
	seq, err := g.log.Append(&r)
	if err != nil {
		return Pass{}, &Refusal{Code: CodeUnavailable, Rule: d.Rule, Err: fmt.Errorf("recording %s: %w", a.Action, err)}
	}
	if !d.Allow {
		return Pass{}, &Refusal{Code: code, Ref: seq, Rule: d.Rule}
	}
	a.Args = nil // the message may be gone before the act is
	return Pass{Ref: seq, act: a, resource: where}, nil
}

// Leave records how an act ended: result is one constant word, bytes the size
// of what went back.
func (g *Gate) Leave(p Pass, result string, bytes int64) {
	r := record(p.act, p.resource)
	r.Kind, r.Ref, r.Result, r.Bytes = audit.Outcome, p.Ref, result, bytes
	g.log.Later(&r)
}

func question(a Act) policy.Request {
	return policy.Request{Who: a.Who, Action: a.Action, Server: a.Server, Name: a.Name, Args: a.Args, Confirmed: a.Confirmed}
}

func record(a Act, resource string) audit.Record {
	return audit.Record{Source: "gate", Who: a.Who, Session: a.Session, Action: a.Action, Resource: resource}
}

func resource(a Act) string {
	if a.Name == "" {
		return a.Server
	}
	return a.Server + "/" + a.Name
}

func verdict(allow bool) string {
	if allow {
		return audit.Allow
	}
	return audit.Deny
}

// withinRate is a generic cell rate limiter with a burst of one second's
// worth: one atomic word for each principal, so two sessions share no lock.
// The word is when the last admitted call would have been due at a steady
// pace; a call that would be due more than a second ahead has to wait. A word
// stays for the life of the gate: principals are few, and each was
// authenticated.
func (g *Gate) withinRate(who *principal.Principal) bool {
	if g.rate <= 0 {
		return true
	}
	v, ok := g.buckets.Load(who.Name())
	if !ok {
		v, _ = g.buckets.LoadOrStore(who.Name(), new(atomic.Int64))
	}
	cell := v.(*atomic.Int64)
	step := int64(float64(time.Second) / g.rate)
	now := int64(g.clock())
	for {
		tat := cell.Load()
		next := max(tat, now) + step
		if next-now > int64(time.Second) {
			return false
		}
		if cell.CompareAndSwap(tat, next) {
			return true
		}
	}
}
