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
	Form  Form
	Sep   string // between the elements of a set
	Image bool   // it describes the program: see Request.SameProgram
}

// KnownFacts are the facts that rules can read, by name. Any other name in a rule is a
// misspelling.
var KnownFacts = map[string]Fact{
	"uid": {Form: FormNumber}, "gid": {Form: FormNumber}, "groups": {Form: FormNumbers, Sep: ","},
	"label": {}, "instance": {}, "namespaces": {}, "pid": {Form: FormNumber},

	"launcher": {}, "parent": {}, "token": {}, "scope": {Form: FormTexts, Sep: ","},
	"issuer": {}, "subject": {}, "client_id": {}, "oauth_scope": {Form: FormTexts, Sep: " "}, "audience": {Form: FormTexts, Sep: " "},

	"exe": {Image: true}, "exe_sha256": {Image: true}, "parent_exe": {Image: true}, "parents": {Image: true},
	"start": {Image: true}, "cgroup": {Image: true}, "unit": {Image: true},
}

// contextOf returns the facts that some rule reads, each under exactly its grade. A fact
// that could not be read is absent, and so is a fact about the program if the
// request is not known to come from the same one (Request.SameProgram).
func (s *Set) contextOf(p *principal.Principal, same bool) types.Record {
	context := types.RecordMap{}
	for _, grade := range []principal.Grade{principal.Attested, principal.Verified, principal.Observed} {
		group := types.RecordMap{}
		for _, f := range p.Facts() {
			k := KnownFacts[f.Name]
			if _, twice := group[types.String(f.Name)]; twice || f.Grade != grade || k.Image && !same || !slices.Contains(s.facts, f.Name) {
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
	one := func(s string) types.Value { return types.String(s) }
	if f.Form == FormNumber || f.Form == FormNumbers {
		one = long
	}
	if f.Form != FormTexts && f.Form != FormNumbers {
		return one(s)
	}
	var all []types.Value
	for part := range strings.SplitSeq(s, f.Sep) {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, one(part))
		}
	}
	if slices.Contains(all, nil) {
		return nil
	}
	return types.NewSet(all...)
}

func long(s string) types.Value {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	return types.Long(n)
}
