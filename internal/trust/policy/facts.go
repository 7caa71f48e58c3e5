package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/doorward/doorward/internal/trust/principal"
)

// form is what a value is to Cedar.
type form uint8

const (
	formText form = iota
	formNumber
	formTruth
	formTexts
	formNumbers
	formThings
)

func (f form) String() string {
	return [...]string{"text", "a number", "true or false", "a set of texts", "a set of numbers", "a set of entities"}[f]
}

// fact is what is known of a fact in advance.
type fact struct {
	grades []principal.Grade // at which it occurs
	form   form
	sep    string // between the elements of a set
	image  bool   // it describes the program: see Request.Confirmed
}

// knownFacts are the facts that rules can read. A name that is not among them
// is a misspelling.
var knownFacts = tableOfFacts()

func tableOfFacts() map[string]fact {
	attested, verified, observed := []principal.Grade{principal.Attested}, []principal.Grade{principal.Verified}, []principal.Grade{principal.Observed}
	seen := func(f form, sep string) fact { return fact{grades: observed, form: f, sep: sep, image: true} }
	proved := func(f form, sep string) fact { return fact{grades: verified, form: f, sep: sep} }
	return map[string]fact{
		"uid":      {grades: []principal.Grade{principal.Attested, principal.Observed}, form: formNumber},
		"gid":      {grades: attested, form: formNumber},
		"groups":   {grades: attested, form: formNumbers, sep: ","},
		"label":    {grades: attested},
		"instance": {grades: []principal.Grade{principal.Attested, principal.Observed}},

		"launcher":    proved(formText, ""),
		"parent":      proved(formText, ""),
		"token":       proved(formText, ""),
		"scope":       proved(formTexts, ","),
		"issuer":      proved(formText, ""),
		"subject":     proved(formText, ""),
		"client_id":   proved(formText, ""),
		"oauth_scope": proved(formTexts, " "),
		"audience":    proved(formTexts, " "),

		"pid":        {grades: observed, form: formNumber},
		"namespaces": {grades: observed},
		"exe":        seen(formText, ""), "exe_sha256": seen(formText, ""), "parent_exe": seen(formText, ""), "parents": seen(formText, ""),
		"start": seen(formText, ""), "cgroup": seen(formText, ""), "unit": seen(formText, ""),
	}
}

// factGroups are the groups of the context that hold facts.
func factGroups() []principal.Grade {
	return []principal.Grade{principal.Attested, principal.Verified, principal.Observed}
}

// contextOf returns each fact that some rule reads under exactly its grade. What
// could not be read is absent, and so is what describes a program that the
// request does not confirm.
func (s *Set) contextOf(p *principal.Principal, confirmed bool) types.Record {
	context := types.RecordMap{}
	for _, grade := range factGroups() {
		group := types.RecordMap{}
		for _, f := range p.Facts() {
			k := knownFacts[f.Name]
			if _, twice := group[types.String(f.Name)]; twice || f.Grade != grade || k.image && !confirmed || !slices.Contains(s.facts, f.Name) {
				continue
			}
			if v := k.value(f.Value); v != nil {
				group[types.String(f.Name)] = v
			}
		}
		context[types.String(grade.String())] = types.NewRecord(group)
	}
	return types.NewRecord(context)
}

// value is the text of a fact as Cedar knows it; nil when it is none of its
// form.
func (f fact) value(s string) types.Value {
	switch f.form {
	case formNumber:
		return long(s)
	case formTexts, formNumbers:
		var all []types.Value
		for _, part := range strings.Split(s, f.sep) {
			part = strings.TrimSpace(part)
			switch {
			case part == "":
			case f.form == formTexts:
				all = append(all, types.String(part))
			case long(part) == nil:
				return nil
			default:
				all = append(all, long(part))
			}
		}
		return types.NewSet(all...)
	}
	return types.String(s)
}

func long(s string) types.Value {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	return types.Long(n)
}

// factsOf lists the names of a group, sorted.
func factsOf(grade principal.Grade) []string {
	var out []string
	for name, f := range knownFacts {
		if slices.Contains(f.grades, grade) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// attributes are what rules can read of a principal and of a resource.
func attributes(variable string) map[string]form {
	switch variable {
	case "principal":
		return map[string]form{"name": formText, "kind": formText, "local": formTruth, "owner": formTruth, "stranger": formTruth,
			"scoped": formTruth, "admin": formTruth, "grants": formThings, "servers": formThings}
	case "resource":
		return map[string]form{"name": formText, "server": formText, "configured": formTruth}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
