package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/daemon/policycheck"
)

// ReadPolicy reads the policy file, if there is one, into PolicyText. open is as in Options.
func (c *Config) ReadPolicy(open func(path string) (*os.File, error)) error {
	if c.Policy == "" {
		return nil
	}
	b, err := readFile(c.Policy, open)
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("the file is larger than %d bytes", maxFile)
	}
	if errors.Is(err, errNoFile) {
		return fmt.Errorf("%s: %w; make it, or leave the key out", c.Policy, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Policy, err)
	}
	c.PolicyText = b
	return nil
}

// PolicyTestsFile returns the path of the tests of a policy file.
func PolicyTestsFile(policyFile string) string {
	return strings.TrimSuffix(policyFile, ".cedar") + ".tests.yaml"
}

// PolicyTests reads the tests beside a policy file; if that file is missing, there are none. A test with a
// problem is left out, and the others are returned.
func PolicyTests(policyFile string) ([]policycheck.Trial, []Problem) {
	path := PolicyTestsFile(policyFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	content, err := readFile(path, nil)
	if err != nil {
		return nil, []Problem{{File: path, Problem: err.Error()}}
	}
	return ParsePolicyTests(path, content)
}

// ParsePolicyTests is PolicyTests for content in memory.
func ParsePolicyTests(name string, content []byte) ([]policycheck.Trial, []Problem) {
	src := source{newReport(name)}
	root := src.testsTree(content)
	if root == nil {
		return nil, src.report.problems
	}
	src.lint(root)
	var out []policycheck.Trial
	for i, n := range root.Content {
		at, before := fmt.Sprintf("[%d]", i), len(src.report.problems)
		if t := (trials{src}).trial(n, at); len(src.report.problems) == before {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(src.report.problems, func(a, b Problem) int { return a.Line - b.Line })
	return out, src.report.problems
}

// testsTree parses a list; nil: the document is empty, or has a problem that was reported.
func (s source) testsTree(content []byte) *yaml.Node {
	if len(content) > maxFile {
		s.report.failAt(1, "", fmt.Sprintf("the file is larger than %d bytes", maxFile))
		return nil
	}
	return s.yamlTree(content, yaml.SequenceNode, "the file must be a list of tests, each with as, action, resource and expect")
}

// trialKeys are the keys of one test.
var trialKeys = []string{"name", "as", "action", "resource", "local", "confirmed", "facts", "args", "expect", "rule"}

// trials reads the tests of a policy.
type trials struct{ src source }

// trial decodes one test.
func (r trials) trial(n *yaml.Node, at string) policycheck.Trial {
	t := policycheck.Trial{Line: n.Line}
	if !r.src.is(n, at, yaml.MappingNode, "a mapping with as, action, resource and expect") {
		return t
	}
	given := map[string]bool{}
	for name, child := range pairs(n) {
		given[name] = true
		r.value(child, at, name, &t)
	}
	for _, need := range []string{"as", "action", "expect"} {
		if !given[need] {
			r.src.report.fail(at, fmt.Sprintf("its key %q is missing", need))
		}
	}
	return t
}

// value decodes one key of a test.
func (r trials) value(n *yaml.Node, at, name string, t *policycheck.Trial) {
	key := join(at, name)
	text := func() string { s, _ := r.src.text(n, key); return s }
	switch name {
	case "name":
		t.Name = text()
	case "as":
		if err := t.Caller(text()); err != nil {
			r.src.report.also(key, err.Error())
		}
	case "action":
		t.Action = text()
	case "resource":
		t.Resource = text()
	case "rule":
		t.Rule = text()
	case "local":
		t.Local = r.src.truth(n, key)
	case "confirmed":
		t.SameProgram = r.src.truth(n, key)
	case "expect":
		t.Allow = text() == "allow"
		if s := n.Value; s != "allow" && s != "deny" && !r.src.report.failed[key] {
			r.src.report.fail(key, "this must be allow or deny")
		}
	case "facts":
		r.facts(n, key, t)
	case "args":
		if r.src.is(n, key, yaml.MappingNode, "a mapping") {
			t.Args = r.appendJSON(nil, n, key)
		}
	default:
		r.src.report.fail(key, "unknown key"+suggest(name, trialKeys)+"; the keys are "+strings.Join(trialKeys, ", "))
	}
}

func (s source) truth(n *yaml.Node, key string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		s.report.fail(key, "this must be true or false, without quotes")
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// facts decodes facts by grade.
func (r trials) facts(n *yaml.Node, key string, t *policycheck.Trial) {
	if !r.src.is(n, key, yaml.MappingNode, "a mapping of attested, verified and observed") {
		return
	}
	for grade, group := range pairs(n) {
		at := join(key, grade)
		if !r.src.is(group, at, yaml.MappingNode, "a mapping of facts") {
			continue
		}
		for name, value := range pairs(group) {
			values, ok := r.factValues(value, join(at, name))
			if !ok {
				continue
			}
			if err := t.Fact(grade, name, values...); err != nil {
				r.src.report.fail(join(at, name), err.Error())
			}
		}
	}
}

// factValues decodes one value, or a list for a fact that is a set.
func (r trials) factValues(n *yaml.Node, key string) ([]string, bool) {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	var out []string
	for _, v := range nodes {
		if v.Kind != yaml.ScalarNode || v.Tag != "!!str" && (v.Tag != "!!int" || !bareInt.MatchString(v.Value)) {
			r.src.report.fail(key, "this must be text, a whole number, or a list of them")
			return nil, false
		}
		out = append(out, v.Value)
	}
	return out, true
}

// appendJSON appends a value as JSON.
func (r trials) appendJSON(dst []byte, n *yaml.Node, key string) []byte {
	switch {
	case n.Kind == yaml.MappingNode:
		dst = append(dst, '{')
		for name, child := range pairs(n) {
			if len(dst) > 0 && dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, name), ':')
			dst = r.appendJSON(dst, child, join(key, name))
		}
		return append(dst, '}')
	case n.Kind == yaml.SequenceNode:
		dst = append(dst, '[')
		for i, child := range n.Content {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.appendJSON(dst, child, fmt.Sprintf("%s[%d]", key, i))
		}
		return append(dst, ']')
	case n.Kind != yaml.ScalarNode:
		return append(dst, "null"...) // lint has reported it
	}
	return r.appendScalar(dst, n, key)
}

func (r trials) appendScalar(dst []byte, n *yaml.Node, key string) []byte {
	switch n.Tag {
	case "!!null":
		return append(dst, "null"...)
	case "!!bool":
		return append(dst, strings.ToLower(n.Value)...)
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return append(dst, n.Value...)
		}
		r.src.report.fail(key, "this number cannot be written so in JSON; write it in plain decimal digits, or in quotes if it is text")
		return append(dst, '0')
	}
	return appendText(dst, n.Value)
}

func appendText(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return append(dst, `""`...) // no text fails to marshal
	}
	return append(dst, b...)
}
