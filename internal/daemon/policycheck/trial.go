package policycheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Trial is one question of a tests file with the expected answer.
type Trial struct {
	Name string
	Line int // its line in the tests file

	As, Action, Resource string // as in `doorward explain`
	Local, SameProgram   bool
	Facts                []principal.Fact
	Args                 []byte // a JSON object; nil: a call without arguments

	Allow bool
	Rule  string // the rule that must decide; empty: any
}

// Try decides the questions of a tests file. Each answer that differs from the expected one
// is a problem.
func Try(s *policy.Set, file string, trials []Trial) []policy.Problem {
	var out []policy.Problem
	for _, t := range trials {
		d := s.Decide(t.question())
		if d.Allow == t.Allow && (t.Rule == "" || t.Rule == d.Rule) {
			continue
		}
		want := allowed(t.Allow)
		if t.Rule != "" {
			want += " by " + t.Rule
		}
		got := allowed(d.Allow) + " by " + d.Rule
		if d.At != "" && d.At != d.Rule {
			got += " (" + d.At + ")"
		}
		what := strings.TrimSpace(fmt.Sprintf("%s %s %s", t.As, t.Action, t.Resource))
		out = append(out, policy.Problem{File: file, Line: t.Line, Key: cmp.Or(t.Name, what), Text: fmt.Sprintf("expected %s, got %s: %s", want, got, d.Reason)})
	}
	return out
}

func (t Trial) question() policy.Request {
	who := principal.New(t.As, t.Facts...)
	if t.Local {
		who = who.WithLocal()
	}
	server, name, _ := strings.Cut(t.Resource, "/")
	return policy.Request{Who: who, Action: t.Action, Server: server, Name: name, Args: t.Args, SameProgram: t.SameProgram}
}

func allowed(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

// Caller sets the principal of the question.
func (t *Trial) Caller(name string) error {
	if _, _, err := principal.Parse(name); err != nil {
		return fmt.Errorf("no principal has this name; %s", spelling)
	}
	t.As = name
	return nil
}

// Fact adds a fact in the notation of a person, with the grade of that name. The elements of
// a set are separate values.
func (t *Trial) Fact(grade, name string, values ...string) error {
	f, err := factOf(grade, name, values)
	if err == nil {
		t.Facts = append(t.Facts, f)
	}
	return err
}

func factOf(grade, name string, values []string) (principal.Fact, error) {
	i := slices.IndexFunc(grades(), func(g principal.Grade) bool { return g.String() == grade })
	if i < 0 {
		return principal.Fact{}, fmt.Errorf("%s is not a grade that a rule can read; the grades are attested, verified, observed", policy.Clip(grade))
	}
	g := grades()[i]
	f, ok := policy.KnownFacts[name]
	if !ok {
		return principal.Fact{}, fmt.Errorf("there is no %s fact %s; %s", grade, policy.Clip(name), oneOf("there are", occurs[g]))
	}
	if !slices.Contains(occurs[g], name) {
		return principal.Fact{}, fmt.Errorf("the fact %s is never %s; it is %s", name, grade, gradesOf(name))
	}
	if f.Sep == "" && len(values) != 1 {
		return principal.Fact{}, fmt.Errorf("the fact %s has one value: it is %s", name, word(f.Form))
	}
	value := strings.Join(values, f.Sep)
	if f.Value(value) == nil {
		return principal.Fact{}, fmt.Errorf("the fact %s is %s", name, word(f.Form))
	}
	return principal.Fact{Name: name, Value: value, Grade: g}, nil
}
