package policy

// Facts in the context of rules. Invariant: a fact is found under exactly its grade, and
// a claimed fact not at all.

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/doorward/doorward/internal/trust/principal"
)

// Form is the Cedar type of a fact's value: a string, a Long, a boolean, or a set.
type Form uint8

const (
	FormText Form = iota
	FormNumber
	FormTruth
	FormTexts
	FormNumbers
	FormThings
)

// Fact describes a kind of fact.
type Fact struct {
	Grades []principal.Grade // with which it occurs
	Form   Form
	Sep    string // between the elements of a set
	Image  bool   // it describes the program: see Request.Confirmed
}

// KnownFacts are the facts that rules can read, by name. Any other name in a rule is a
// misspelling.
var KnownFacts = tableOfFacts()

func tableOfFacts() map[string]Fact {
	attested, verified, observed := []principal.Grade{principal.Attested}, []principal.Grade{principal.Verified}, []principal.Grade{principal.Observed}
	seen := func(f Form, sep string) Fact { return Fact{Grades: observed, Form: f, Sep: sep, Image: true} }
	proved := func(f Form, sep string) Fact { return Fact{Grades: verified, Form: f, Sep: sep} }
	return map[string]Fact{
		"uid":      {Grades: []principal.Grade{principal.Attested, principal.Observed}, Form: FormNumber},
		"gid":      {Grades: attested, Form: FormNumber},
		"groups":   {Grades: attested, Form: FormNumbers, Sep: ","},
		"label":    {Grades: attested},
		"instance": {Grades: []principal.Grade{principal.Attested, principal.Observed}},

		"launcher":    proved(FormText, ""),
		"parent":      proved(FormText, ""),
		"token":       proved(FormText, ""),
		"scope":       proved(FormTexts, ","),
		"issuer":      proved(FormText, ""),
		"subject":     proved(FormText, ""),
		"client_id":   proved(FormText, ""),
		"oauth_scope": proved(FormTexts, " "),
		"audience":    proved(FormTexts, " "),

		"pid":        {Grades: observed, Form: FormNumber},
		"namespaces": {Grades: observed},
		"exe":        seen(FormText, ""), "exe_sha256": seen(FormText, ""), "parent_exe": seen(FormText, ""), "parents": seen(FormText, ""),
		"start": seen(FormText, ""), "cgroup": seen(FormText, ""), "unit": seen(FormText, ""),
	}
}

// factGroups returns the grades whose names are the records of facts in the context.
func factGroups() []principal.Grade {
	return []principal.Grade{principal.Attested, principal.Verified, principal.Observed}
}

// contextOf returns the facts that some rule reads, each under exactly its grade. A fact
// that could not be read is absent, and so is a fact about the program if the
// request does not confirm it.
func (s *Set) contextOf(p *principal.Principal, confirmed bool) types.Record {
	context := types.RecordMap{}
	for _, grade := range factGroups() {
		group := types.RecordMap{}
		for _, f := range p.Facts() {
			k := KnownFacts[f.Name]
			if _, twice := group[types.String(f.Name)]; twice || f.Grade != grade || k.Image && !confirmed || !slices.Contains(s.facts, f.Name) {
				continue
			}
			if v := k.Value(f.Value); v != nil {
				group[types.String(f.Name)] = v
			}
		}
		context[types.String(grade.String())] = types.NewRecord(group)
	}
	return types.NewRecord(context)
}

// Value converts the text of a fact to a Cedar value; nil: the text is not of its form.
func (f Fact) Value(s string) types.Value {
	switch f.Form {
	case FormNumber:
		return long(s)
	case FormTexts, FormNumbers:
		var all []types.Value
		for _, part := range strings.Split(s, f.Sep) {
			part = strings.TrimSpace(part)
			switch {
			case part == "":
			case f.Form == FormTexts:
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
