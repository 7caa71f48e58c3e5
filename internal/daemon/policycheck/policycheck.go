// Package policycheck checks a policy file for its author: it finds rules that can never mean
// what they say, runs the tests of a file, and prints the whole policy. trust/policy decides
// without it.
//
// Invariant: Compile returns a Set only if policy returns one; it refuses more files and
// allows nothing.
package policycheck

import (
	"slices"

	"github.com/doorward/doorward/internal/trust/policy"
)

// Compile is policy.Compile with all problems of the file. The Set is nil if a problem is
// more than a warning.
func Compile(o policy.Options) (*policy.Set, []policy.Problem) {
	if problems := unreadable(o.File, o.Text); problems != nil {
		return nil, problems
	}
	set, problems := policy.Compile(o)
	if len(problems) == 1 && problems[0].Syntax != nil {
		return nil, []policy.Problem{syntaxProblem(o.File, o.Text, problems[0].Syntax)}
	}
	if o.File != "" {
		problems = append(problems, lint(o)...)
	}
	slices.SortStableFunc(problems, func(a, b policy.Problem) int { return a.Line - b.Line })
	if Fatal(problems) {
		return nil, problems
	}
	return set, problems
}

// Fatal reports whether a problem is more than a warning.
func Fatal(problems []policy.Problem) bool {
	return slices.ContainsFunc(problems, func(p policy.Problem) bool { return !p.Warning })
}
