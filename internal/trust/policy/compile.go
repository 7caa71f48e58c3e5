package policy

// Compilation of the lists and the policy file into a Set. Invariant: a Set is made only
// if there is no problem, and it has all rules of the file, the lists and the
// default policy.

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Options are the inputs of Compile.
type Options struct {
	UID     uint32 // the daemon's own user
	Servers map[string]ServerRules
	File    string // the operator's policy file, for names and problems; empty: none
	Text    []byte // content of File; the caller has checked that it is text and not nested deeply
}

// Compile builds a Set. It is nil when there are problems.
func Compile(o Options) (*Set, []Problem) {
	own, problems := o.own()
	builtin, broken := load(defaultFile, defaultText)
	if problems = append(broken, problems...); len(problems) > 0 {
		return nil, problems
	}
	lists := compileLists(o.Servers)
	s := &Set{uid: strconv.FormatUint(uint64(o.UID), 10), actions: knownActions(), cache: newCache(), lists: o.Servers}
	s.arrange(o.Servers, inOrder(own, builtin, lists))
	return s, nil
}

// own returns the rules of the operator's file, and their problems.
func (o Options) own() ([]*rule, []Problem) {
	if o.File == "" {
		return nil, nil
	}
	rules, problems := load(o.File, o.Text)
	for _, r := range rules {
		problems = append(problems, r.unfounded(o.File)...)
	}
	return rules, problems
}

// unfounded returns the problems of a rule that depends on facts in a way that is not
// allowed: a permit that reads an observed fact, or any rule that reads the context as a
// whole, which does not show the grades of the facts.
func (r *rule) unfounded(file string) (found []Problem) {
	say := func(text string) {
		p := Problem{File: file, Line: r.syntax.Position.Line, Text: text}
		if id, given := Annotation(r.syntax, "id"); given {
			p.Key = Clip(id)
		}
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	for _, c := range r.syntax.Conditions {
		Paths(c.Body, func(p Path) {
			switch {
			case p.Variable != "context":
			case len(p.Steps) == 0:
				say("a rule may not use context as a whole, since it does not show which facts it rests on; name them, as in context.attested.uid")
			case r.permit && p.Steps[0] == principal.Observed.String():
				say("a permit may not rest on an observed fact; write a forbid")
			}
		})
	}
	return found
}

// ListRules returns the rules that the servers' own lists are compiled to.
func ListRules(servers map[string]ServerRules) (all []*ast.Policy) {
	for _, r := range compileLists(servers) {
		all = append(all, r.syntax)
	}
	return all
}

// Default returns the text of the default policy.
func Default() []byte { return bytes.Clone(defaultText) }

// inOrder sorts the rules. When several rules decide, the first of them is named in the
// decision. The operator's permits come first and the operator's forbids last, because
// a forbid that the operator cannot change is the stronger reason.
func inOrder(own, builtin, lists []*rule) []*rule {
	permits := slices.DeleteFunc(slices.Clone(own), func(r *rule) bool { return !r.permit })
	forbids := slices.DeleteFunc(slices.Clone(own), func(r *rule) bool { return r.permit })
	return slices.Concat(permits, builtin, lists, forbids)
}

// arrange indexes the rules by server, so that the lists of other servers do not slow
// a decision down.
func (s *Set) arrange(servers map[string]ServerRules, rules []*rule) {
	s.rules = make(map[cedar.PolicyID]*rule, len(rules))
	s.servers = make(map[string][]*rule, len(servers))
	for i, r := range rules {
		r.order = i
		s.rules[cedar.PolicyID(r.name)] = r
		s.facts = append(s.facts, r.facts...)
		if r.server == "" {
			s.general = append(s.general, r)
		}
	}
	for name := range servers {
		for _, r := range rules {
			if r.server == "" || r.server == name {
				s.servers[name] = append(s.servers[name], r)
			}
		}
	}
}

// rulesFor returns the rules that can apply to an act on a server. For a server that is
// not configured the general rules suffice, because default.unknown-server denies the act.
func (s *Set) rulesFor(server string) []*rule {
	if rules, ok := s.servers[server]; ok {
		return rules
	}
	return s.general
}
