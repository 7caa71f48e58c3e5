package policycheck

import (
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// node checks one expression and its parts.
func (l *linter) node(n ast.IsNode) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		if p, ok := policy.PathOf(n); ok {
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
	l.narrowed = l.narrowed || e.Type == policy.TypePrincipal || e.Type == policy.TypeKind
	l.entity(e)
}

// path checks a path that a rule reads.
func (l *linter) path(p policy.Path) {
	switch {
	case p.Variable == "context":
		l.context(p)
	case len(p.Steps) == 0:
	case p.Variable == "action":
		l.fail("an action has no members; compare it with Action::\"…\"")
	default:
		l.attribute(p)
	}
}

func (l *linter) attribute(p policy.Path) {
	known := attributes(p.Variable)
	l.narrowed = l.narrowed || p.Variable == "principal" && !slices.Contains([]string{"local", "stranger"}, p.Steps[0])
	switch _, ok := known[p.Steps[0]]; {
	case !ok:
		l.fail("a %s has no %s; %s", p.Variable, policy.Clip(p.Steps[0]), oneOf("it has", slices.Sorted(maps.Keys(known))))
	case len(p.Steps) > 1:
		l.fail("%s.%s has no members", p.Variable, p.Steps[0])
	}
}

// context checks a path into the context.
func (l *linter) context(p policy.Path) {
	if len(p.Steps) == 0 {
		return // policy itself refuses it
	}
	l.programs = l.programs || p.Steps[0] != "args" && len(p.Steps) > 1 && policy.KnownFacts[p.Steps[1]].Image
	switch group := p.Steps[0]; group {
	case "args":
		l.args = true
		l.guarded = l.guarded || p.Has && len(p.Steps) == 1
	case principal.Claimed.String():
		l.fail("a claim of the caller about itself decides nothing, so there is no context.claimed; use an attested or verified fact")
	case principal.Observed.String():
		if l.permit {
			return // policy itself refuses it
		}
		l.fact(principal.Observed, p)
	case principal.Attested.String():
		l.fact(principal.Attested, p)
	case principal.Verified.String():
		l.fact(principal.Verified, p)
	default:
		l.fail("the context has no %s; it has attested, verified, observed, args", policy.Clip(group))
	}
}

func (l *linter) fact(grade principal.Grade, p policy.Path) {
	if len(p.Steps) == 1 {
		if !p.Has {
			l.fail("name the fact, as in context.%s.%s", grade, occurs[grade][0])
		}
		return
	}
	name := p.Steps[1]
	f, ok := policy.KnownFacts[name]
	switch {
	case !ok:
		l.fail("there is no %s fact %s; %s", grade, policy.Clip(name), oneOf("there are", occurs[grade]))
	case !slices.Contains(occurs[grade], name):
		l.fail("the fact %s is never %s; it is %s", name, grade, gradesOf(name))
	case len(p.Steps) > 2:
		l.fail("context.%s.%s has no members: it is %s", grade, name, word(f.Form))
	}
}

// formOf returns the form of a path's value; false: it is not known in advance.
func formOf(p policy.Path) (policy.Form, bool) {
	switch {
	case p.Has || len(p.Steps) == 0:
		return 0, false
	case p.Variable == "context" && len(p.Steps) == 2 && p.Steps[0] != "args":
		f, ok := policy.KnownFacts[p.Steps[1]]
		return f.Form, ok
	case p.Variable != "context" && len(p.Steps) == 1:
		f, ok := attributes(p.Variable)[p.Steps[0]]
		return f, ok
	}
	return 0, false
}

// formOfValue returns the form of a literal.
func formOfValue(n ast.IsNode) (policy.Form, bool) {
	v, ok := n.(ast.NodeValue)
	if !ok {
		return 0, false
	}
	switch v.Value.(type) {
	case types.String:
		return policy.FormText, true
	case types.Long:
		return policy.FormNumber, true
	case types.Boolean:
		return policy.FormTruth, true
	}
	return 0, false
}

// comparison finds comparisons that can never be true. For Cedar they are just false, and a
// forbid with such a condition never forbids.
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
		l.fail("entities have no tags here; read an attribute or a fact")
	case ast.NodeTypeLike:
		if p, ok := policy.PathOf(n.Arg); ok {
			if f, known := formOf(p); known && f != policy.FormText {
				l.fail("%s is %s, and like compares text", written(p), word(f))
			}
		}
	}
}

func (l *linter) pair(a, b ast.IsNode) {
	p, ok := policy.PathOf(a)
	if !ok {
		if p, ok = policy.PathOf(b); !ok {
			return
		}
		b = a
	}
	literal, isLiteral := formOfValue(b)
	known, isKnown := formOf(p)
	switch {
	case isLiteral && len(p.Steps) == 0 && p.Variable != "context":
		l.fail("the %s is not %s; compare it with %s", p.Variable, word(literal), map[string]string{"principal": `Principal::"…"`,
			"action": `Action::"…"`, "resource": `Tool::"…" or Server::"…"`}[p.Variable])
	case isLiteral && isKnown && known != literal:
		l.fail("%s is %s and is compared with %s, which it never equals", written(p), word(known), word(literal))
	case isLiteral && p.Variable == "principal" && len(p.Steps) == 1 && p.Steps[0] == "kind":
		l.entity(types.NewEntityUID(policy.TypeKind, b.(ast.NodeValue).Value.(types.String)))
	}
}

// element checks a set operation: the element that is searched for must have the type of the
// set's elements.
func (l *linter) element(n ast.NodeTypeContains) {
	if set, ok := n.Left.(ast.NodeTypeSet); ok {
		for _, e := range set.Elements {
			l.pair(e, n.Right)
		}
		return
	}
	p, ok := policy.PathOf(n.Left)
	literal, isLiteral := formOfValue(n.Right)
	if !ok || !isLiteral {
		return
	}
	if f, known := formOf(p); known && !(f == policy.FormTexts && literal == policy.FormText || f == policy.FormNumbers && literal == policy.FormNumber) {
		l.fail("%s is %s and does not contain %s", written(p), word(f), word(literal))
	}
}
