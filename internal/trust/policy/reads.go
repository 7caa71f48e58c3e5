package policy

// The paths that rules read. Invariant: every path into the context that an expression can
// evaluate is found.

import (
	"strings"

	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Path is a chain of member accesses from one of Cedar's four variables, such
// as context.attested.uid. Has means that the last step is a `has` test.
type Path struct {
	Variable string
	Steps    []string
	Has      bool
}

// PathOf returns n as a path; false: n is not one. A variable alone is a path
// without steps.
func PathOf(n ast.IsNode) (Path, bool) {
	switch n := n.(type) {
	case ast.NodeTypeVariable:
		return Path{Variable: string(n.Name)}, true
	case ast.NodeTypeAccess:
		p, ok := PathOf(n.Arg)
		p.Steps = append(p.Steps, string(n.Value))
		return p, ok && !p.Has
	case ast.NodeTypeHas:
		p, ok := PathOf(n.Arg)
		p.Steps, p.Has = append(p.Steps, string(n.Value)), true
		return p, ok
	}
	return Path{}, false
}

// Paths calls f with every path in n that is not part of a longer one.
func Paths(n ast.IsNode, f func(Path)) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		p, ok := PathOf(n)
		if ok {
			f(p)
		}
		return !ok
	})
}

// reads returns the parts of the context that a rule reads: the names of facts, with ""
// for a whole record of facts, and the arguments; nil: none.
func reads(p *ast.Policy) (facts []string, args *need) {
	for _, c := range p.Conditions {
		Paths(c.Body, func(p Path) {
			if p.Variable == "context" && len(p.Steps) > 0 && p.Steps[0] != "args" {
				facts = append(facts, strings.Join(p.Steps[1:min(2, len(p.Steps))], ""))
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

// argsIn returns the arguments that an expression reads; nil: none.
func argsIn(n ast.IsNode) *need {
	var out *need
	Paths(n, func(p Path) {
		if p.Variable != "context" || len(p.Steps) > 0 && p.Steps[0] != "args" {
			return
		}
		if out == nil {
			out = &need{}
		}
		switch {
		case len(p.Steps) > 1:
			out.add(&need{names: p.Steps[1:2]})
		case !p.Has:
			out.all = true
		}
	})
	return out
}
