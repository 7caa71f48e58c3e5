// Package policycheck reads a policy file as a person who reviews it would: it
// finds rules that can never mean what they say, runs the tests of a file, and
// prints the whole policy. trust/policy decides without it.
//
// Invariant: Compile gives a Set only where policy gives one; it refuses more
// and allows nothing.
package policycheck

import (
	"slices"

	"github.com/doorward/doorward/internal/trust/policy"
)

// Compile is policy.Compile for a file that a person wrote, with everything that
// is wrong with it. The Set is nil when one of the problems is more than a
// warning.
func Compile(o policy.Options) (*policy.Set, []policy.Problem) {
	set, problems := policy.Compile(o)
	if len(problems) == 1 && problems[0].Syntax != nil {
		return nil, []policy.Problem{syntaxProblem(o.File, o.Text, problems[0].Syntax)}
	}
	own, _ := o.Statements()
	problems = append(problems, lint(own, o)...)
	slices.SortStableFunc(problems, func(a, b policy.Problem) int { return a.Line - b.Line })
	if policy.Fatal(problems) {
		return nil, problems
	}
	return set, problems
}
