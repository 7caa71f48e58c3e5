package policy

// Verdicts. Invariant: an answer from the cache is the answer that all rules give.

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// verdict is the part of a decision that does not depend on arguments. The cache keeps it.
type verdict struct {
	plain  Decision // by the rules that read no arguments
	denied bool     // plain is the decision of a forbid, which arguments cannot change
	named  int      // of a call: see Set.named

	// The rules that remain to be evaluated once the arguments are known.
	permits, forbids []*rule
	need             need
	world            *world
}

// settled reports whether plain is the decision with any arguments.
func (v *verdict) settled() bool {
	return v.denied || len(v.forbids) == 0 && (len(v.permits) == 0 || v.plain.Allow && !slices.ContainsFunc(v.permits, asks))
}

// listed returns the decision about an entry of a list. An entry is shown if a permit
// could allow it with some arguments.
func (v *verdict) listed() Decision {
	if v.plain.Allow || len(v.permits) == 0 {
		return v.plain
	}
	return v.permits[0].allowed()
}

// verdict returns the cached verdict of q, or makes a new one.
func (s *Set) verdict(q *Request) *verdict {
	k := key{q.Who.Identity(), q.Action, q.Server, q.Name, q.SameProgram}
	if !k.fits() {
		return s.judge(*q)
	}
	hash := s.cache.hash(&k)
	if v := s.cache.find(&k, hash); v != nil {
		return v
	}
	e := &entry{hash: hash, key: k, verdict: *s.judge(*q)}
	s.cache.keep(e)
	return &e.verdict
}

// judge makes the verdict of q from all rules that can apply.
func (s *Set) judge(q Request) *verdict {
	w := s.world(q)
	var plain, about []*rule
	for _, r := range s.rulesFor(q.Server) {
		switch {
		case !r.mayApply(&w.caller, string(w.action.ID)):
		case q.Action == AgentDelegate && r.permit && r.action != AgentDelegate: // see AgentDelegate
		case r.args != nil && HasArguments(q.Action):
			about = append(about, r)
		default: // an action without arguments is decided without them, also by rules that read them
			plain = append(plain, r)
		}
	}
	v := &verdict{}
	if q.Action == ActionCall {
		v.named = s.named(q)
	}
	s.settle(v, w, plain, q)
	if !v.denied && len(about) > 0 {
		s.leaveOpen(v, w, about)
	}
	return v
}

// settle sets the plain decision, by rules that are evaluated without arguments.
func (s *Set) settle(v *verdict, w *world, rules []*rule, q Request) {
	switch o := s.ask(rules, w, w.context); {
	case o.forbid != nil:
		v.plain, v.denied = o.forbid.denied(o.blind), true
	case o.permit != nil:
		v.plain = o.allowed()
	default:
		v.plain = unpermitted(&w.caller, q)
	}
}

// leaveOpen adds the rules about arguments that can still apply. A forbid that cannot be
// evaluated up to its first clause about arguments denies at once.
func (s *Set) leaveOpen(v *verdict, w *world, about []*rule) {
	diag := w.authorize(ballot{about, func(r *rule) *cedar.Policy { return r.ahead }}, w.resources[0], w.context)
	for _, e := range diag.Errors {
		if r := s.rules[e.PolicyID]; !r.permit && !v.denied {
			v.plain, v.denied = r.denied(true), true
		}
	}
	if v.denied {
		return
	}
	for _, e := range diag.Reasons {
		r := s.rules[e.PolicyID]
		v.need.add(r.args)
		if r.permit {
			v.permits = append(v.permits, r)
		} else {
			v.forbids = append(v.forbids, r)
		}
	}
	v.world = w
}

// withArguments evaluates the rules that were left open. Arguments that cannot be
// converted are denied by the first forbid that would have read them.
func (s *Set) withArguments(v *verdict, args []byte) Decision {
	rules := slices.Concat(v.permits, v.forbids)
	if v.plain.Allow {
		rules = slices.DeleteFunc(rules, func(r *rule) bool { return r.permit && r.asks == "" })
	}
	record, err := arguments(args, &v.need)
	if err != nil {
		return v.unread()
	}
	o := s.ask(rules, v.world, v.world.with(record))
	switch {
	case o.forbid != nil:
		return o.forbid.denied(o.blind)
	case v.plain.Allow && o.asking != nil:
		d := v.plain
		d.Ask = o.allowed().Ask
		return d
	case !v.plain.Allow && o.permit != nil:
		return o.allowed()
	}
	return v.plain
}

// unread returns the decision for arguments that cannot be converted: the first forbid
// that would have read them denies, and otherwise a permit with @ask holds the act.
func (v *verdict) unread() Decision {
	if len(v.forbids) > 0 {
		return v.forbids[0].denied(true)
	}
	d := v.plain
	if i := slices.IndexFunc(v.permits, asks); d.Allow && d.Ask.Rule == "" && i >= 0 {
		d.Ask = v.permits[i].allowed().Ask
	}
	return d
}

// HasArguments reports whether an action has arguments that rules can read.
func HasArguments(action string) bool {
	switch action {
	case ActionCall, ActionPrompt, AgentSee, AgentSend, AgentDeliver, AgentDelegate:
		return true
	}
	return false
}

// with returns the context with the arguments of a call.
func (w *world) with(args types.Record) types.Record {
	m := w.context.Map()
	if m == nil {
		m = types.RecordMap{}
	}
	m["args"] = args
	return types.NewRecord(m)
}
