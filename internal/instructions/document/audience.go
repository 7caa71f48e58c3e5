package document

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/plainyaml"
)

// Audience describes the readers that a document is meant for. Each list that is not
// empty must have a pattern that matches; in a pattern * stands for any run of
// characters. An unknown fact of a caller matches no pattern, not even *. The lists are
// sorted and have no pattern twice.
//
// Principals and lineage are proved facts, and the role is that of a verified launcher.
// The project is claimed: it selects among what policy permits. The environment is the
// daemon's own.
type Audience struct {
	Principals   []string `json:"principals,omitempty"`
	Projects     []string `json:"projects,omitempty"`
	Roles        []string `json:"roles,omitempty"`
	Lineage      []string `json:"lineage,omitempty"`
	Environments []string `json:"environments,omitempty"`
}

// Caller holds the facts of a reader that audiences match: "" and nil are unknown.
type Caller struct {
	Principal   string
	Project     string
	Role        string
	Environment string
	Lineage     []string // the principals above it, such as that of the agent's parent
}

const (
	maxPatterns = 64
	maxPattern  = 256 // bytes
)

// audience parses the header key of that name.
func (p *parser) audience(n *yaml.Node) Audience {
	var a Audience
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, "audience must be a mapping, such as {principals: [\"uid:1000\"]}")
		return a
	}
	for k, v := range plainyaml.Pairs(n) {
		switch k.Value {
		case "principals":
			a.Principals = p.patterns(v)
		case "projects":
			a.Projects = p.patterns(v)
		case "roles":
			a.Roles = p.patterns(v)
		case "lineage":
			a.Lineage = p.patterns(v)
		case "environments":
			a.Environments = p.patterns(v)
		default:
			p.fail(k.Line, "unknown key %q; an audience has principals, projects, roles, lineage and environments", plaintext.Clip(k.Value, maxShown))
		}
	}
	return a
}

func (p *parser) patterns(n *yaml.Node) []string {
	if n.Kind != yaml.SequenceNode {
		p.fail(n.Line, "this must be a list, such as [\"uid:*\"]")
		return nil
	}
	if len(n.Content) > maxPatterns {
		p.fail(n.Line, "there are more than %d patterns", maxPatterns)
		return nil
	}
	var out []string
	for _, item := range n.Content {
		text, ok := p.text(item)
		if ok && (text == "" || len(text) > maxPattern || strings.ContainsAny(text, "\n\t")) {
			p.fail(item.Line, "a pattern is 1 to %d bytes on one line", maxPattern)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lists returns the dimensions in their order of precedence.
func (a *Audience) lists() [dimensions][]string {
	return [...][]string{a.Principals, a.Lineage, a.Roles, a.Projects, a.Environments}
}

const (
	dimensions = 5
	lineage    = 1 // its index among them: the only dimension of which a caller can have several facts
)

func (a *Audience) everybody() bool {
	for _, list := range a.lists() {
		if len(list) > 0 {
			return false
		}
	}
	return true
}

// canonical returns bytes that are equal exactly for equal audiences.
func (a *Audience) canonical() []byte {
	raw, _ := json.Marshal(a) // it cannot fail: lists of texts
	return raw
}

// rank says how specifically an audience matches, by dimension in their order of
// precedence: 0 for an empty list, more for a longer pattern, the maximum for a full
// name.
type rank [dimensions]int

// match returns the rank of the audience for a caller; false: the document is not for it.
func (a *Audience) match(c *Caller) (r rank, ok bool) {
	facts := [dimensions][]string{{c.Principal}, c.Lineage, {c.Role}, {c.Project}, {c.Environment}}
	for i, list := range a.lists() {
		if len(list) == 0 {
			continue
		}
		for _, pattern := range list {
			for _, fact := range facts[i] {
				if fact != "" && globs(pattern, fact) {
					r[i] = max(r[i], weight(pattern))
				}
			}
		}
		if r[i] == 0 {
			return r, false
		}
	}
	return r, true
}

// weight returns the rank of a pattern that matched; it is never 0.
func weight(pattern string) int {
	stars := strings.Count(pattern, "*")
	if stars == 0 {
		return math.MaxInt
	}
	return 1 + len(pattern) - stars
}

// globs reports whether a pattern matches s; * stands for any run of characters, also an
// empty one.
func globs(pattern, s string) bool {
	p, i := 0, 0
	star, from := -1, 0 // the last star, and the end of the text that it stands for
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// rivals reports whether both audiences may match some caller equally well. It can be
// wrong for lists in which a better pattern always wins; that costs a needless warning.
func rivals(a, b *Audience) bool {
	others := b.lists()
	for i, list := range a.lists() {
		if len(list) == 0 && len(others[i]) == 0 {
			continue
		}
		meet := func(p string) bool {
			return slices.ContainsFunc(others[i], func(q string) bool {
				return weight(p) == weight(q) && (i == lineage || overlap(p, q))
			})
		}
		if !slices.ContainsFunc(list, meet) {
			return false
		}
	}
	return true
}

// overlap reports whether some text matches both patterns.
func overlap(p, q string) bool {
	if !strings.Contains(p, "*") {
		return globs(q, p)
	}
	if !strings.Contains(q, "*") {
		return globs(p, q)
	}
	// With a star in both, a star of one can stand for what is between the first and the
	// last star of the other: only the ends must agree.
	pHead, qHead := p[:strings.Index(p, "*")], q[:strings.Index(q, "*")]
	pTail, qTail := p[strings.LastIndex(p, "*")+1:], q[strings.LastIndex(q, "*")+1:]
	return (strings.HasPrefix(pHead, qHead) || strings.HasPrefix(qHead, pHead)) &&
		(strings.HasSuffix(pTail, qTail) || strings.HasSuffix(qTail, pTail))
}
