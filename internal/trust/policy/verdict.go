package policy

// Verdicts. Invariant: an answer from the cache is the answer that all rules give.

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// verdict is what can be said of a question before its arguments are looked
// at. It is what the cache keeps.
type verdict struct {
	plain  Decision // by the rules that read no arguments
	denied bool     // plain is a forbid's: nothing can change it
	named  int      // of a call: see Set.named

	// The rules that remain to be evaluated once the arguments are known.
	permits, forbids []*rule
	need             need
	world            *world
}

// settled reports whether arguments can change nothing.
func (v *verdict) settled() bool {
	return v.denied || len(v.forbids) == 0 && (len(v.permits) == 0 || v.plain.Allow && !slices.ContainsFunc(v.permits, asks))
}

// listed decides about an entry of a list: an entry that some arguments would
// allow is shown.
func (v *verdict) listed() Decision {
	if v.plain.Allow || len(v.permits) == 0 {
		return v.plain
	}
	return v.permits[0].allowed()
}

// verdict takes the cached answer or finds a new one.
func (s *Set) verdict(q Request) *verdict {
	k := keyOf(q)
	if !k.fits() {
		return s.judge(q)
	}
	hash := s.cache.hash(&k)
	if v := s.cache.find(&k, hash); v != nil {
		return v
	}
	e := &entry{hash: hash, key: k, verdict: *s.judge(q)}
	s.cache.keep(e)
	return &e.verdict
}

// judge asks every rule that can apply.
func (s *Set) judge(q Request) *verdict {
	w := s.world(q)
	var plain, about []*rule
	for _, r := range s.rulesFor(q.Server) {
		switch {
		case !r.mayApply(&w.caller, w.actionName()):
		case q.Action == AgentDelegate && r.permit && r.action != AgentDelegate: // authority is given in so many words
		case r.args != nil && HasArguments(q.Action):
			about = append(about, r)
		default: // without arguments a rule about them finds none
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

// settle decides by the rules that read no arguments.
func (s *Set) settle(v *verdict, w *world, rules []*rule, q Request) {
	var o outcome
	for _, resource := range w.resources {
		o = o.and(s.ask(rules, w, resource.UID, w.context))
	}
	switch {
	case o.forbid != nil:
		v.plain, v.denied = o.forbid.denied(o.blind), true
	case o.permit != nil:
		v.plain = o.allowed()
	default:
		v.plain = unpermitted(&w.caller, q)
	}
}

// leaveOpen notes the rules about arguments that may yet apply. A forbid that
// fails before it comes to the arguments denies here.
func (s *Set) leaveOpen(v *verdict, w *world, about []*rule) {
	_, diag := cedar.Authorize(ballot{about, ahead}, w, w.request(w.resources[0].UID, w.context))
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

// withArguments asks the rules that were left open. Arguments that cannot be
// made sense of are refused by the first forbid that would have read them.
func (s *Set) withArguments(v *verdict, args []byte) Decision {
	rules := slices.Concat(v.permits, v.forbids)
	if v.plain.Allow {
		rules = slices.DeleteFunc(rules, func(r *rule) bool { return r.permit && r.asks == "" })
	}
	record, err := arguments(args, &v.need)
	if err != nil {
		return v.unread()
	}
	o := s.ask(rules, v.world, v.world.resources[0].UID, v.world.with(record))
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

// unread is the decision where the arguments make no sense: a forbid that would have
// read them denies, and a permit that might have asked for the operator does.
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

// HasArguments names the actions that come with arguments.
func HasArguments(action string) bool {
	switch action {
	case ActionCall, ActionPrompt, AgentSee, AgentSend, AgentDeliver, AgentDelegate:
		return true
	}
	return false
}

// with is the context of a call with its arguments.
func (w *world) with(args types.Record) types.Record {
	m := w.context.Map()
	if m == nil {
		m = types.RecordMap{}
	}
	m["args"] = args
	return types.NewRecord(m)
}
