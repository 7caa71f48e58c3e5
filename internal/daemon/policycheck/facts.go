package policycheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// word returns the name of a form.
func word(f policy.Form) string {
	return [...]string{"text", "a number", "true or false", "a set of texts", "a set of numbers", "a set of entities"}[f]
}

// factsOf lists the names of a group, sorted.
func factsOf(grade principal.Grade) []string {
	var out []string
	for name, f := range policy.KnownFacts {
		if slices.Contains(f.Grades, grade) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// attributes returns the attributes of a principal or of a resource that rules can read.
func attributes(variable string) map[string]policy.Form {
	switch variable {
	case "principal":
		return map[string]policy.Form{"name": policy.FormText, "kind": policy.FormText, "local": policy.FormTruth, "owner": policy.FormTruth, "stranger": policy.FormTruth,
			"scoped": policy.FormTruth, "admin": policy.FormTruth, "grants": policy.FormThings, "servers": policy.FormThings}
	case "resource":
		return map[string]policy.Form{"name": policy.FormText, "server": policy.FormText, "configured": policy.FormTruth}
	}
	return nil
}

// written returns a path in Cedar's notation.
func written(p policy.Path) string {
	return fmt.Sprintf("%s.%s", p.Variable, strings.Join(p.Steps, "."))
}
