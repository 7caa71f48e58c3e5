package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/trust/principal"
)

// path is a chain of member accesses from one of Cedar's four variables, such
// as context.attested.uid. has: its last step asks whether there is a member.
type path struct {
	variable string
	steps    []string
	has      bool
}

// pathOf reads n as a path; false when it is none. A variable alone is a path
// without steps.
func pathOf(n ast.IsNode) (path, bool) {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return path{variable: string(n.Name)}, true
	case ast.NodeTypeAccess:
		p, ok := pathOf(n.Arg)
		p.steps = append(p.steps, string(n.Value))
		return p, ok && !p.has
	case ast.NodeTypeHas:
		p, ok := pathOf(n.Arg)
		p.steps, p.has = append(p.steps, string(n.Value)), true
		return p, ok
	}
	return path{}, false
}

// paths calls f with every path in n that is part of no longer one.
func paths(n ast.IsNode, f func(path)) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		p, ok := pathOf(n)
		if ok {
			f(p)
		}
		return !ok
	})
}

// reads says what a rule needs of the context: which facts, "" standing for
// their groups alone, and which arguments, nil for none.
func reads(p *ast.Policy) (facts []string, args *need) {
	for _, c := range p.Conditions {
		paths(c.Body, func(p path) {
			if p.variable == "context" && len(p.steps) > 0 && p.steps[0] != "args" {
				facts = append(facts, strings.Join(p.steps[1:min(2, len(p.steps))], ""))
			}
		})
		if n := argsIn(c.Body); n != nil && args == nil {
			args = n
		} else if n != nil {
			args.add(n)
		}
	}
	return facts, args
}

// argsIn is which arguments an expression reads; nil for none.
func argsIn(n ast.IsNode) *need {
	var out *need
	paths(n, func(p path) {
		if p.variable != "context" || len(p.steps) > 0 && p.steps[0] != "args" {
			return
		}
		if out == nil {
			out = &need{}
		}
		switch {
		case len(p.steps) > 1:
			out.add(&need{names: p.steps[1:2]})
		case !p.has:
			out.all = true
		}
	})
	return out
}

// node checks one expression and its parts.
func (l *linter) node(n ast.IsNode) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		if p, ok := pathOf(n); ok {
			l.path(p)
			return false
		}
		switch n := n.(type) {
		case ast.NodeValue:
			l.value(n.Value)
		case ast.NodeTypeIs:
			l.entityType(n.EntityType)
		case ast.NodeTypeIsIn:
			l.entityType(n.EntityType)
		}
		l.comparison(n)
		return true
	})
}

func (l *linter) value(v types.Value) {
	e, ok := v.(types.EntityUID)
	if !ok {
		return
	}
	l.narrowed = l.narrowed || e.Type == typePrincipal || e.Type == typeKind
	l.entity(e)
}

// path checks what a rule reads.
func (l *linter) path(p path) {
	switch {
	case p.variable == "context":
		l.context(p)
	case len(p.steps) == 0:
	case p.variable == "action":
		l.fail("an action has no members; compare it with Action::\"…\"")
	default:
		l.attribute(p)
	}
}

func (l *linter) attribute(p path) {
	known := attributes(p.variable)
	l.narrowed = l.narrowed || p.variable == "principal" && !slices.Contains([]string{"local", "stranger"}, p.steps[0])
	switch _, ok := known[p.steps[0]]; {
	case !ok:
		l.fail("a %s has no %s; %s", p.variable, clip(p.steps[0]), oneOf("it has", sortedKeys(known)))
	case len(p.steps) > 1:
		l.fail("%s.%s has no members", p.variable, p.steps[0])
	}
}

// context checks a path into the context.
func (l *linter) context(p path) {
	if len(p.steps) == 0 {
		l.fail("a rule may not use context as a whole, since it does not show which facts it rests on; name them, as in context.attested.uid")
		return
	}
	switch group := p.steps[0]; group {
	case "args":
		l.guarded = l.guarded || p.has && len(p.steps) == 1
	case principal.Claimed.String():
		l.fail("what a caller says of itself decides nothing, and there is no context.claimed; use an attested or verified fact")
	case principal.Observed.String():
		if l.rule.permit {
			l.fail("a permit may not rest on an observed fact; write a forbid")
			return
		}
		l.fact(principal.Observed, p)
	case principal.Attested.String():
		l.fact(principal.Attested, p)
	case principal.Verified.String():
		l.fact(principal.Verified, p)
	default:
		l.fail("the context has no %s; it has attested, verified, observed, args", clip(group))
	}
}

func (l *linter) fact(grade principal.Grade, p path) {
	if len(p.steps) == 1 {
		if !p.has {
			l.fail("name the fact, as in context.%s.%s", grade, factsOf(grade)[0])
		}
		return
	}
	name := p.steps[1]
	f, ok := knownFacts[name]
	switch {
	case !ok:
		l.fail("there is no %s fact %s; %s", grade, clip(name), oneOf("there are", factsOf(grade)))
	case !slices.Contains(f.grades, grade):
		l.fail("the fact %s is never %s; it is %s", name, grade, gradesOf(f))
	case len(p.steps) > 2:
		l.fail("context.%s.%s has no members: it is %s", grade, name, f.form)
	}
}

func gradesOf(f fact) string {
	var all []string
	for _, g := range f.grades {
		all = append(all, g.String())
	}
	return strings.Join(all, " or ")
}

// formOf returns the type of a path's value; false where it is not known in
// advance.
func formOf(p path) (form, bool) {
	switch {
	case p.has || len(p.steps) == 0:
		return 0, false
	case p.variable == "context" && len(p.steps) == 2 && p.steps[0] != "args":
		f, ok := knownFacts[p.steps[1]]
		return f.form, ok
	case p.variable != "context" && len(p.steps) == 1:
		f, ok := attributes(p.variable)[p.steps[0]]
		return f, ok
	}
	return 0, false
}

// formOfValue is what a literal is.
func formOfValue(n ast.IsNode) (form, bool) {
	v, ok := n.(ast.NodeValue)
	if !ok {
		return 0, false
	}
	switch v.Value.(type) {
	case types.String:
		return formText, true
	case types.Long:
		return formNumber, true
	case types.Boolean:
		return formTruth, true
	}
	return 0, false
}

// comparison finds comparisons that can never be true: Cedar says no, not
// that they make no sense, and a forbid behind one is no forbid.
func (l *linter) comparison(n ast.IsNode) {
	switch n := n.(type) {
	case ast.NodeTypeEquals:
		l.pair(n.Left, n.Right)
	case ast.NodeTypeNotEquals:
		l.pair(n.Left, n.Right)
	case ast.NodeTypeLessThan:
		l.pair(n.Left, n.Right)
	case ast.NodeTypeLessThanOrEqual:
		l.pair(n.Left, n.Right)
	case ast.NodeTypeGreaterThan:
		l.pair(n.Left, n.Right)
	case ast.NodeTypeGreaterThanOrEqual:
		l.pair(n.Left, n.Right)
	case ast.NodeTypeContains:
		l.element(n)
	case ast.NodeTypeHasTag, ast.NodeTypeGetTag:
		l.fail("nothing here has tags; read an attribute or a fact")
	case ast.NodeTypeLike:
		if p, ok := pathOf(n.Arg); ok {
			if f, known := formOf(p); known && f != formText {
				l.fail("%s is %s, and like compares text", p, f)
			}
		}
	}
}

func (l *linter) pair(a, b ast.IsNode) {
	p, ok := pathOf(a)
	if !ok {
		if p, ok = pathOf(b); !ok {
			return
		}
		b = a
	}
	literal, isLiteral := formOfValue(b)
	known, isKnown := formOf(p)
	switch {
	case isLiteral && len(p.steps) == 0 && p.variable != "context":
		l.fail("the %s is not %s; compare it with %s", p.variable, literal, map[string]string{"principal": `Principal::"…"`,
			"action": `Action::"…"`, "resource": `Tool::"…" or Server::"…"`}[p.variable])
	case isLiteral && isKnown && known != literal:
		l.fail("%s is %s and is compared with %s, which it never is", p, known, literal)
	case isLiteral && p.variable == "principal" && len(p.steps) == 1 && p.steps[0] == "kind":
		l.entity(types.NewEntityUID(typeKind, b.(ast.NodeValue).Value.(types.String)))
	}
}

// element checks a set operation: the element that is searched for must have the
// type of the set's elements.
func (l *linter) element(n ast.NodeTypeContains) {
	if set, ok := n.Left.(ast.NodeTypeSet); ok {
		for _, e := range set.Elements {
			l.pair(e, n.Right)
		}
		return
	}
	p, ok := pathOf(n.Left)
	literal, isLiteral := formOfValue(n.Right)
	if !ok || !isLiteral {
		return
	}
	if f, known := formOf(p); known && !(f == formTexts && literal == formText || f == formNumbers && literal == formNumber) {
		l.fail("%s is %s and does not contain %s", p, f, literal)
	}
}

func (p path) String() string {
	return fmt.Sprintf("%s.%s", p.variable, strings.Join(p.steps, "."))
}
