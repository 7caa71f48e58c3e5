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

// occurs lists the facts that occur with each grade, sorted by name.
var occurs = map[principal.Grade][]string{
	principal.Attested: {"gid", "groups", "instance", "label", "uid"},
	principal.Verified: {"audience", "client_id", "issuer", "launcher", "oauth_scope", "parent", "scope", "subject", "token"},
	principal.Observed: {"cgroup", "exe", "exe_sha256", "instance", "namespaces", "parent_exe", "parents", "pid", "start", "uid", "unit"},
}

// grades returns the grades of facts that rules can read, the best first.
func grades() []principal.Grade {
	return []principal.Grade{principal.Attested, principal.Verified, principal.Observed}
}

// gradesOf lists the grades with which a fact occurs, the best first.
func gradesOf(name string) string {
	var all []string
	for _, g := range grades() {
		if slices.Contains(occurs[g], name) {
			all = append(all, g.String())
		}
	}
	return strings.Join(all, " or ")
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
