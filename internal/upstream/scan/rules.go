package scan

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

//go:embed default.patterns
var defaultPatterns []byte

// Set holds the rules of one pattern file. It is immutable.
type Set struct {
	rules []rule
	sieve *sieve
}

type rule struct {
	name string
	re   *regexp.Regexp
	// needs are texts of which every match contains one, in lower case; nil: none were found.
	// Searching for them is much cheaper than matching.
	needs [][]byte
}

// LineError is the error in one line of a pattern file.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

// Limits of a pattern file.
const (
	maxRules      = 256
	maxExpression = 4096
)

var ruleName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// Parse reads a pattern file; its error describes everything that is wrong with it.
func Parse(text []byte) (*Set, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the file is not UTF-8")
	}
	s := &Set{}
	var wrong []error
	seen := make(map[string]bool)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		r, err := parseRule(line)
		if err == nil && seen[r.name] {
			err = errors.New("there is another rule with this name above")
		}
		if err != nil {
			wrong = append(wrong, &LineError{n, err})
			continue
		}
		seen[r.name] = true
		s.rules = append(s.rules, r)
	}
	switch {
	case len(s.rules) > maxRules:
		wrong = append(wrong, fmt.Errorf("there are more than %d rules", maxRules))
	case len(s.rules) == 0 && wrong == nil:
		wrong = append(wrong, errors.New("the file has no rule"))
	}
	s.sieve = newSieve(s.rules)
	return s, errors.Join(wrong...)
}

func parseRule(line string) (rule, error) {
	name, expr := line, ""
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		name, expr = line[:i], strings.TrimSpace(line[i:])
	}
	switch {
	case !ruleName.MatchString(name):
		return rule{}, errors.New("a rule must begin with its name: lower-case letters, digits and hyphens")
	case expr == "":
		return rule{}, errors.New("a rule must have an expression after its name")
	case len(expr) > maxExpression:
		return rule{}, errors.New("the expression is too long")
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		var wrong *syntax.Error
		if errors.As(err, &wrong) {
			return rule{}, fmt.Errorf("the expression is not RE2: %s", wrong.Code)
		}
		return rule{}, errors.New("the expression is not RE2")
	}
	if re.MatchString("") {
		return rule{}, errors.New("the expression matches the empty text, and with it everything")
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return rule{}, errors.New("the expression is not RE2")
	}
	return rule{name: name, re: re, needs: needs(tree.Simplify())}, nil
}

// match is one place that a rule matches.
type match struct{ rule, start, end int }

// label returns the text that replaces a cut. It is no match of any rule.
func (r *rule) label() string { return labelStart + r.name + "]" }

const labelStart = "[redacted:"

// find returns the matches of all rules in text, ordered by their starts.
func (s *Set) find(text []byte) []match {
	var out []match
	labels := s.labels(text)
	for _, i := range s.sieve.candidates(text) {
		for _, at := range s.rules[i].re.FindAllSubmatchIndex(text, -1) {
			m := match{i, at[0], at[1]}
			if len(at) > 2 && at[2] >= 0 {
				m.start, m.end = at[2], at[3]
			}
			if m.start < m.end && !inside(labels, m) {
				out = append(out, m)
			}
		}
	}
	slices.SortFunc(out, func(a, b match) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	return out
}

// labels returns the places of labels in text.
func (s *Set) labels(text []byte) (out []match) {
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(labelStart))
		if i < 0 {
			return out
		}
		start := from + i
		from = start + len(labelStart)
		for _, r := range s.rules {
			if bytes.HasPrefix(text[from:], []byte(r.name+"]")) {
				out = append(out, match{start: start, end: from + len(r.name) + 1})
			}
		}
	}
}

func inside(labels []match, m match) bool {
	return slices.ContainsFunc(labels, func(l match) bool { return m.start >= l.start && m.end <= l.end })
}

// rounds bounds how often a text is searched again after a cut: the text around it may now
// match another rule.
const rounds = 8

// without returns text with all matches cut, so that no rule matches any more. A text that
// still matches after all rounds is dropped as a whole.
func (s *Set) without(text []byte, found []match) []byte {
	for range rounds {
		text = s.replaced(text, found)
		if found = s.find(text); found == nil {
			return text
		}
	}
	return nil
}

func (s *Set) replaced(text []byte, found []match) []byte {
	var out []byte
	last := 0
	for i := 0; i < len(found); {
		m := found[i]
		for i++; i < len(found) && found[i].start < m.end; i++ {
			m.end = max(m.end, found[i].end)
		}
		out = append(out, text[last:m.start]...)
		out = append(out, s.rules[m.rule].label()...)
		last = m.end
	}
	return append(out, text[last:]...)
}
