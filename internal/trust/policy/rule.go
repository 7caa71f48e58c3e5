package policy

// Rules. Invariant: a rule that is skipped before Cedar evaluates could not have matched,
// and a forbid that cannot be evaluated denies.

import (
	"cmp"
	"iter"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// rule is one compiled statement.
type rule struct {
	name, reason, at string
	asks             string // of a permit with @ask, the reason; otherwise empty
	permit           bool
	order            int // index in the order of inOrder
	syntax           *ast.Policy
	whole            *cedar.Policy

	// The exact parts of the rule's head; empty where the head is less specific.
	// They are compared before Cedar evaluates, which would give the same result.
	who, kind, action, server string

	facts []string // names of the facts that it reads
	args  *need    // arguments that it reads; nil: none
	// ahead is the part of a rule about arguments that can be decided without them, as
	// a permit. If it does not match, the rule does not match. nil: args is nil.
	ahead *cedar.Policy
}

// newRule compiles a statement. reason is the default for a statement without @reason.
func newRule(name, at, reason string, p *ast.Policy) *rule {
	r := &rule{name: name, at: at, reason: reason, permit: p.Effect == ast.EffectPermit, syntax: p}
	if given, ok := Annotation(p, "reason"); ok {
		r.reason = given
	}
	if given, ok := Annotation(p, "ask"); ok && r.permit {
		r.asks = cmp.Or(given, "a rule requires approval")
	}
	r.whole = cedar.NewPolicyFromAST((*publicPolicy)(p))
	r.readHead(p)
	r.facts, r.args = reads(p)
	if r.args != nil {
		r.ahead = cedar.NewPolicyFromAST((*publicPolicy)(aheadOf(p)))
	}
	return r
}

// readHead sets the exact parts of the head of a statement.
func (r *rule) readHead(p *ast.Policy) {
	switch s := p.Principal.(type) {
	case ast.ScopeTypeEq:
		r.who = string(s.Entity.ID)
	case ast.ScopeTypeIn:
		r.kind = string(s.Entity.ID)
	}
	if s, ok := p.Action.(ast.ScopeTypeEq); ok {
		r.action = string(s.Entity.ID)
	}
	switch s := p.Resource.(type) {
	case ast.ScopeTypeEq:
		r.server = serverOf(s.Entity)
	case ast.ScopeTypeIn:
		r.server = serverOf(s.Entity)
	case ast.ScopeTypeIsIn:
		r.server = serverOf(s.Entity)
	}
}

// serverOf returns the server that a resource is on; empty: none.
func serverOf(e types.EntityUID) string {
	switch e.Type {
	case TypeServer:
		return string(e.ID)
	case TypeTool, TypePrompt, TypeResource:
		server, _, _ := strings.Cut(string(e.ID), "/")
		return server
	}
	return ""
}

// aheadOf returns a permit with the clauses of p that can be decided without arguments.
// For a permit these are all clauses that do not read arguments. For a forbid they are
// only the clauses before the first that does: that clause may fail to evaluate, which
// denies, before Cedar evaluates a later one.
func aheadOf(p *ast.Policy) *ast.Policy {
	head := *p
	head.Effect, head.Annotations, head.Conditions = ast.EffectPermit, nil, nil
	for _, c := range p.Conditions {
		if argsIn(c.Body) == nil {
			head.Conditions = append(head.Conditions, c)
		} else if p.Effect == ast.EffectForbid {
			break
		}
	}
	return &head
}

// mayApply reports whether the exact parts of the rule's head match. c.name counts as a
// kind too, because `principal in` also holds for the principal itself.
func (r *rule) mayApply(c *caller, action string) bool {
	return (r.who == "" || r.who == c.name) && (r.kind == "" || r.kind == c.kind || r.kind == c.name) &&
		(r.action == "" || r.action == action)
}

// before reports whether r comes before other in the order of the rules; nil comes last.
func (r *rule) before(other *rule) bool { return other == nil || r.order < other.order }

// allowed returns the decision of a permit that matches.
func (r *rule) allowed() Decision {
	d := Decision{Allow: true, Rule: r.name, Reason: r.reason, At: r.at}
	if r.asks != "" {
		d.Ask = Ask{Rule: r.name, Reason: r.asks}
	}
	return d
}

// denied returns the decision of a forbid. blind means that it denies because it reads a
// fact or an argument that is missing.
func (r *rule) denied(blind bool) Decision {
	d := Decision{Rule: r.name, Reason: r.reason, At: r.at}
	if blind {
		d.Reason = "this rule needs a fact or an argument that is not there"
	}
	return d
}

// ballot is a set of rules, all in one form, for an evaluation by Cedar.
type ballot struct {
	rules []*rule
	form  func(*rule) *cedar.Policy // whole or ahead
}

// All implements cedar.PolicyIterator.
func (b ballot) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, r := range b.rules {
			if !yield(cedar.PolicyID(r.name), b.form(r)) {
				return
			}
		}
	}
}

// outcome is the result of evaluating rules: the first permit and the first forbid in
// order that match; nil: none does.
type outcome struct {
	permit, forbid *rule
	blind          bool  // forbid denies because it could not be evaluated
	asking         *rule // the first permit with @ask; nil: none
}

// allowed returns the decision of the permit. The act is held if any matching permit has @ask.
func (o outcome) allowed() Decision {
	d := o.permit.allowed()
	if o.asking != nil {
		d.Ask = o.asking.allowed().Ask
	}
	return d
}

// ask evaluates rules with Cedar, for each resource that the name may mean. Cedar skips a
// rule that it cannot evaluate. Skipping a forbid would fail open, so such a forbid denies
// here; a permit that cannot be evaluated does not apply.
func (s *Set) ask(rules []*rule, w *world, context types.Record) (o outcome) {
	for _, resource := range w.resources {
		diag := w.authorize(ballot{rules, func(r *rule) *cedar.Policy { return r.whole }}, resource, context)
		for _, e := range diag.Errors {
			if r := s.rules[e.PolicyID]; !r.permit && r.before(o.forbid) {
				o.forbid, o.blind = r, true
			}
		}
		for _, e := range diag.Reasons {
			o.add(s.rules[e.PolicyID])
		}
	}
	return o
}

// add adds a rule that matches.
func (o *outcome) add(r *rule) {
	if r.permit && r.before(o.permit) {
		o.permit = r
	}
	if r.asks != "" && r.before(o.asking) {
		o.asking = r
	}
	if !r.permit && r.before(o.forbid) {
		o.forbid, o.blind = r, false
	}
}
