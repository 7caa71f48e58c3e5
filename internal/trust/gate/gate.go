// Package gate is the single point through which every act of a caller passes:
// Enter decides and records, Record writes the record of a deferred act, Refuse
// refuses an act, Leave records its outcome, and Allows answers a question
// without an act.
//
// Invariant: no act happens without a decision in the audit log. When the log
// cannot be written, Enter and Record fail and the act must not happen. A record is in
// the log's file when they return. Only Gate.Record also syncs it; the others do so
// with audit.Options.Always. One exception is outside of this package: the daemon reports its
// own state (status, metrics) also while the log cannot be written.
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

// JSON-RPC codes of refusals.
const (
	CodeDenied      = 1403
	CodeRate        = 1429
	CodeUnavailable = 1503
)

// Refusal is the error of an act that must not happen. Ref is the seq of the record of the
// refusal, or zero when the record could not be written.
type Refusal struct {
	Code int // CodeUnavailable also for any refusal that could not be recorded
	Ref  uint64
	Rule string
	Wait time.Duration // after which the caller may try again; 0: not known
	Err  error         // for the operator; nil when policy or a limit decided and this was recorded

	Asked policy.Request // set when policy decided; valid as long as the act's message
	Who   *principal.Principal
}

// RetryAfter returns Wait in whole seconds, rounded up.
func (r *Refusal) RetryAfter() int { return int((r.Wait + time.Second - 1) / time.Second) }

func (r *Refusal) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("refused (%d): %v", r.Code, r.Err)
	}
	return fmt.Sprintf("refused (%d) by %s", r.Code, r.Rule)
}

func (r *Refusal) Unwrap() error { return r.Err }

// Act is one act that a caller asks for.
type Act struct {
	Who     *principal.Principal
	Session string // a digest, may be empty
	Action  string
	Server  string
	Name    string
	Bytes   int64 // size of the message that asks for it
	// Each holds the servers of an act on several servers; nil: the act is on Server.
	Each []string

	Args        []byte // of a call, raw; for the decision, never for the record
	SameProgram bool   // see policy.Request

	Kind Kind
	With *Charge // shared by the acts that count as one; nil: this act counts by itself
	// Over is the configuration key of a limit that the caller of Enter counts itself and
	// that this act would exceed. Enter refuses an act with it that policy allows. Empty:
	// no such limit.
	Over string

	Source string // of its records; empty: gate

	// Tool holds the claims of the called tool about itself, and Definition the digest of
	// its definition; empty where the tool is not known.
	Tool       policy.Claims
	Definition string
	// Generation changes with each new process of the server.
	Generation uint64
	// Holds means that the caller of Enter can hold the act and handles a *Held.
	// Approval lets a held act through.
	Holds    bool
	Approval *Approval
	// Form returns a normal form of arguments, the same for equal arguments, for the
	// Binding of an approval; nil: their bytes are compared.
	Form func(args []byte) []byte

	// Delivery is the delivery session whose token came with the message, verified
	// by the front; empty: the message had no token.
	Delivery string

	deferred bool
	servers  int64 // number of servers of an act with Each; otherwise 0
}

// Deferred returns the act marked as deferred: it is recorded together with its effect,
// before the commit of that effect, so that it has exactly one record.
func (a Act) Deferred() Act {
	a.deferred = true
	return a
}

// Gate decides and records. Its methods are safe for concurrent use.
type Gate struct {
	policy   atomic.Pointer[policy.Set]
	log      *audit.Log
	limits   Limits
	accounts sync.Map             // key of accountOf -> *account
	clock    func() time.Duration // monotonic time since the gate was made
	refusals refusals
}

// refusals counts refusals.
type refusals struct{ policy, rate, limit, turned atomic.Uint64 }

// of returns the counter of the refusals with a code.
func (r *refusals) of(code int) *atomic.Uint64 {
	switch code {
	case CodeRate:
		return &r.rate
	case CodeUnavailable:
		return &r.limit
	}
	return &r.policy
}

// Refusals returns the numbers of refusals since the start. turned counts deferred acts that
// their server refused after Enter.
func (g *Gate) Refusals() (policy, rate, limit, turned uint64) {
	r := &g.refusals
	return r.policy.Load(), r.rate.Load(), r.limit.Load(), r.turned.Load()
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

// InForce reports whether the policy of a binding is the one in force.
func (g *Gate) InForce(b Binding) bool { return b.set == g.policy.Load() }

// Allows answers a policy question without a record. It is used to filter lists, whose
// own request has entered, and for `doorward explain`.
func (g *Gate) Allows(q policy.Request) policy.Decision { return g.policy.Load().Decide(q) }

// AsksOfClaims reports whether the claims of a server about its tools decide which calls are held.
func (g *Gate) AsksOfClaims(server string) bool { return g.policy.Load().AsksOfClaims(server) }

// Enter decides about an act, charges it to the limits and records the decision, in this
// order:
//
//   - policy decides. A denied act is not charged, and its refusal does not depend on
//     how far the limits are used;
//   - an act that policy allows and holds for the operator needs a.Approval. Enter uses
//     the approval up. It stays used when a later step refuses;
//   - an act with a.Over is refused by that limit;
//   - the act is charged to the limits of its principal;
//   - the decision is recorded, except that of a deferred act.
//
// The error is a *Refusal, a *Held or ErrNone, and the act must not happen with any of
// them. A *Refusal was recorded at once, or its Err says why it could not be. A *Held
// comes only where a.Holds is set: nothing was charged, and nothing recorded. ErrNone
// comes only where a.Each is not nil. With any error the Pass is zero and has no Leave.
// When an allowed act cannot be recorded, it no longer counts as under way, but it stays
// counted in the rate.
//
// With a nil error the caller calls Leave of the Pass exactly once, whether the act
// succeeds or not: Leave ends the charge. For a deferred act the caller also makes exactly
// one record, with Pass.Record, Pass.Refuse, or Gate.Record of Pass.Line, before the
// effect of the act.
//
// An act with a.Each is decided for each of the servers. It is never deferred or held:
// Deferred, Over, Holds and Approval have no effect on it.
func (g *Gate) Enter(a Act) (Pass, error) {
	if a.Each != nil {
		return g.enterEach(a)
	}
	p, err := g.decide(&a)
	if err != nil || a.deferred {
		return p, err
	}
	return p.recorded(p.allowed())
}

// decide applies policy, approval and limits in the order of Enter, and records a
// refusal. It does not record an allowed act.
func (g *Gate) decide(a *Act) (Pass, error) {
	set := g.policy.Load()
	d := set.Decide(question(a))
	if !d.Allow {
		return Pass{}, g.refuse(*a, limit{rule: d.Rule, code: CodeDenied}, 0)
	}
	if d.Ask.Rule == "" {
		a.Approval = nil // the act needs none
	} else if b := bind(set, *a); !a.Approval.take(b) {
		return Pass{}, &Held{Ask: d.Ask, Binding: b, Act: *a}
	}
	if a.Over != "" {
		return Pass{}, g.refuse(*a, limit{rule: a.Over, code: CodeUnavailable, wait: capWait}, 0)
	}
	used := g.accountOf(a)
	if l := g.charge(used, a); l.rule != "" {
		return Pass{}, g.refuse(*a, l, 0)
	}
	a.Args = nil // it may alias a message that is released before the act ends
	p := Pass{gate: g, act: *a, resource: resource(a), used: used, rule: d.Rule}
	if a.deferred {
		p.made = new(made)
	}
	return p, nil
}

func question(a *Act) policy.Request {
	return policy.Request{Who: a.Who, Action: a.Action, Server: a.Server, Name: a.Name, Args: a.Args, SameProgram: a.SameProgram, Holds: a.Holds && a.Each == nil, Tool: a.Tool}
}
