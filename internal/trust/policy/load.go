package policy

// The policy file. Invariant: each rule has a unique name outside the names that Doorward
// reserves. The caller has checked that the text cannot exhaust the parser's stack.

import (
	_ "embed" // of the default policy
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	publicast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/visible"
)

// publicPolicy is the type of cedar-go's public API that has the same underlying type as
// ast.Policy.
type publicPolicy = publicast.Policy

const defaultFile = "default.cedar"

//go:embed default.cedar
var defaultText []byte

// Problem is one error or warning about a policy file.
type Problem struct {
	File    string
	Line    int    // from 1; of a rule, its first line
	Key     string // name of the rule; empty: it has none
	Text    string // what is wrong and how to correct it
	Warning bool   // of policycheck: the policy is used nevertheless
	Syntax  error  // the parser's error, when the file is not Cedar
}

// reservedNames are the prefixes of the names of Doorward's own rules.
var reservedNames = []string{"default.", "mcpServers.", "token.", "limits."}

// load parses a policy file and names its rules.
func load(file string, text []byte) ([]*rule, []Problem) {
	var list cedar.PolicyList
	if err := list.UnmarshalCedar(text); err != nil {
		return nil, []Problem{{File: file, Line: 1, Text: "this is not Cedar: " + Clip(err.Error()), Syntax: err}}
	}
	n := namer{file: file, seen: map[string]int{}}
	for _, p := range list {
		n.add((*ast.Policy)(p.AST()))
	}
	return n.rules, n.problems
}

// namer gives every rule of a file its name.
type namer struct {
	file     string
	seen     map[string]int // line by name
	rules    []*rule
	problems []Problem
}

// add names a rule by its @id, or by its position.
func (n *namer) add(p *ast.Policy) {
	at := fmt.Sprintf("%s:%d", filepath.Base(n.file), p.Position.Line)
	name, given := Annotation(p, "id")
	if !given {
		if name = at; n.seen[name] > 0 {
			name = fmt.Sprintf("%s:%d", at, p.Position.Column)
		}
	} else if problem := n.wrong(name); problem != "" {
		n.say(p, name, problem)
	}
	if reason, _ := Annotation(p, "reason"); !printable(reason, 256) {
		n.say(p, name, "@reason must be one line of at most 256 bytes without control characters; shorten it")
	}
	n.seen[name] = p.Position.Line
	if n.file == defaultFile {
		at = "" // the file is embedded and does not exist for the operator
	}
	n.rules = append(n.rules, newRule(name, at, "a rule of the policy file", p))
}

func (n *namer) say(p *ast.Policy, name, text string) {
	n.problems = append(n.problems, Problem{File: n.file, Line: p.Position.Line, Key: Clip(name), Text: text})
}

// wrong returns the problem of a name given with @id; empty: none.
func (n *namer) wrong(name string) string {
	builtin := n.file == defaultFile
	switch {
	case name == "" || !printable(name, 128):
		return "@id must be one line of 1 to 128 bytes without control characters; choose another"
	case !builtin && slices.ContainsFunc(reservedNames, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		return "names that begin with " + strings.Join(reservedNames, ", ") + " are Doorward's own; choose another @id"
	case n.seen[name] > 0:
		return fmt.Sprintf("the rule on line %d has this @id; give each rule its own", n.seen[name])
	}
	return ""
}

// Annotation returns the value of an annotation of p, and whether p has it.
func Annotation(p *ast.Policy, key string) (string, bool) {
	for _, a := range p.Annotations {
		if string(a.Key) == key {
			return string(a.Value), true
		}
	}
	return "", false
}

// printable reports whether a name or reason may be written to records and
// terminals.
func printable(s string, most int) bool {
	return len(s) <= most && visible.AllPrintable(s)
}

// Clip shortens text of the policy file for a message, and makes it printable.
func Clip(s string) string {
	const most = 64
	if printable(s, most) {
		return s
	}
	return string(principal.AppendQuoted(nil, s, most))
}
