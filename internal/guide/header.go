package guide

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxProblems is how many are told of one file: more help nobody.
const maxProblems = 20

// maxNesting is deeper than any header needs.
const maxNesting = 24

// parser is one reading of a file. It does not stop at a problem.
type parser struct {
	file     string
	problems Problems
}

func (p *parser) fail(line int, format string, args ...any) {
	if len(p.problems) < maxProblems {
		p.problems = append(p.problems, Problem{File: p.file, Line: max(line, 1), Text: printable(fmt.Sprintf(format, args...))})
	}
}

// printable is s with escapes for what a terminal would act on.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strings.Trim(strconv.Quote(s), `"`)
	}
	return s
}

// clip bounds a text of the file for showing it.
func clip(s string) string {
	const most = 64
	for i := range s {
		if i >= most {
			return s[:i] + "…"
		}
	}
	return s
}

// split finds the header. Both ends of it are lines of their own. line is the
// number of the first line of body.
func (p *parser) split(content []byte) (header, body string, line int, ok bool) {
	text := string(content)
	switch at := firstInvalid(text); {
	case len(content) > MaxBytes:
		p.fail(1, "the file is larger than %d bytes", MaxBytes)
		return "", "", 0, false
	case at >= 0:
		p.fail(1+strings.Count(text[:at], "\n"), "this is not UTF-8 text without NUL; save the file as UTF-8")
		return "", "", 0, false
	}
	rest, found := strings.CutPrefix(text, "---\n")
	if !found {
		p.fail(1, "the first line is not ---: the file has no header")
		return "", "", 0, false
	}
	if strings.HasPrefix(rest, "---\n") || rest == "---" {
		p.fail(1, "the header is empty")
		return "", "", 0, false
	}
	header, body, found = strings.Cut(rest, "\n---\n")
	if !found {
		if header, found = strings.CutSuffix(rest, "\n---"); !found {
			p.fail(1, "the header does not end: a second line --- is missing")
			return "", "", 0, false
		}
	}
	// A line end in front lets YAML count the lines as the file does.
	header = "\n" + header + "\n"
	return header, body, 2 + strings.Count(header, "\n"), true
}

// firstInvalid is the offset of the first byte that is not UTF-8 or is NUL.
func firstInvalid(s string) int {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size <= 1 || r == 0 {
			return i
		}
		i += size
	}
	return -1
}

// header reads the YAML between the lines.
func (p *parser) header(text string, d *Document) {
	if !p.visible(text, 1) {
		return
	}
	root, err := document([]byte(text))
	switch {
	case err != nil:
		p.fail(errorLine(text, err), "%s", syntaxText(err))
		return
	case root == nil || root.Kind != yaml.MappingNode:
		p.fail(2, "the header must be a mapping, such as name: voice")
		return
	}
	if !p.lint(root, 0) {
		return
	}
	given := make(map[string]bool)
	for k, v := range pairs(root) {
		given[k.Value] = true
		p.key(k, v, d)
	}
	for _, key := range []string{"name", "class"} {
		if !given[key] {
			p.fail(1, "the key %s is missing", key)
		}
	}
}

// key reads one key of the header.
func (p *parser) key(k, v *yaml.Node, d *Document) {
	switch k.Value {
	case "name":
		d.line = k.Line
		d.Name = p.name(v)
	case "class":
		d.Class = p.choice(v, ClassInstructions, ClassVoice, ClassTemplate)
	case "tier":
		d.Tier = p.choice(v, Behavioural, Structural)
	case "description":
		d.Description = p.description(v)
	case "mcp_prompt":
		if v.Kind != yaml.ScalarNode || v.Tag != "!!bool" {
			p.fail(v.Line, "mcp_prompt must be true or false, without quotes")
		}
		d.Prompt = strings.EqualFold(v.Value, "true")
	case "audience":
		d.Audience = p.audience(v)
	case "variables":
		p.variables(v, d)
	default:
		p.fail(k.Line, "unknown key %q; there are name, class, tier, audience, variables, description and mcp_prompt", clip(k.Value))
	}
}

func (p *parser) name(v *yaml.Node) string {
	name, ok := p.text(v)
	switch {
	case !ok:
		return ""
	case !documentName.MatchString(name):
		p.fail(v.Line, "a name is 1 to 63 characters of a-z, 0-9, dot, underscore and hyphen, and begins with a letter or a digit")
		return ""
	case name == sessionName:
		p.fail(v.Line, "session is the name of the composed text; choose another one")
		return ""
	}
	return name
}

func (p *parser) description(v *yaml.Node) string {
	text, ok := p.text(v)
	if text = strings.TrimSpace(text); ok && (len(text) > maxDescription || strings.Contains(text, "\n")) {
		p.fail(v.Line, "a description is one line of at most %d bytes", maxDescription)
	}
	return text
}

func (p *parser) choice(v *yaml.Node, of ...string) string {
	text, ok := p.text(v)
	if ok && !slices.Contains(of, text) {
		p.fail(v.Line, "%q is not one of %s", clip(text), strings.Join(of, ", "))
	}
	return text
}

// text takes a scalar that is text. A bare number or truth value is not: which
// text it stands for depends on who reads it.
func (p *parser) text(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		p.fail(n.Line, "this must be text; put it in quotes")
		return "", false
	}
	return n.Value, true
}

// lint refuses what would let two readers see two headers, and characters that
// nobody sees. False: the tree is not to be looked at.
func (p *parser) lint(n *yaml.Node, depth int) bool {
	switch {
	case depth > maxNesting:
		p.fail(n.Line, "this is nested too deeply")
		return false
	case n.Kind == yaml.AliasNode:
		p.fail(n.Line, "aliases (*name) are not used here; put a text that begins with * in quotes")
		return false
	case n.Anchor != "":
		p.fail(n.Line, "anchors (&name) are not used here; put a text that begins with & in quotes")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		p.fail(n.Line, "tags (!name) are not used here; put a text that begins with ! in quotes")
		return false
	case n.Kind == yaml.MappingNode:
		return p.lintMapping(n, depth)
	case n.Kind == yaml.ScalarNode:
		return p.visible(n.Value, n.Line)
	}
	ok := true
	for _, child := range n.Content {
		ok = p.lint(child, depth+1) && ok
	}
	return ok
}

func (p *parser) lintMapping(n *yaml.Node, depth int) bool {
	ok := true
	lines := make(map[string]int)
	for k, v := range pairs(n) {
		first, twice := lines[k.Value]
		switch {
		case k.Tag == "!!merge":
			p.fail(k.Line, "merge keys (<<) are not used here; write the keys themselves")
			ok = false
		case k.Kind != yaml.AliasNode && (k.Kind != yaml.ScalarNode || k.Tag != "!!str"):
			p.fail(k.Line, "a key must be text; put it in quotes")
			ok = false
		case twice:
			p.fail(k.Line, "duplicate key %q, first on line %d; keep one", clip(k.Value), first)
			ok = false
		}
		lines[k.Value] = k.Line
		ok = p.lint(k, depth) && ok
		ok = p.lint(v, depth+1) && ok
	}
	return ok
}

// pairs walks a mapping.
func pairs(n *yaml.Node) func(yield func(k, v *yaml.Node) bool) {
	return func(yield func(k, v *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// errSecond is a second document in one header.
var errSecond = errors.New("a second YAML document begins here; the header is one")

// document parses the only YAML document of text; nil when there is none.
func document(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); err == nil {
		return nil, errSecond
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return doc.Content[0], nil
}

// errorLine finds the line of a syntax error. The YAML library names the line
// where the construct around it began; the error itself is on the first line
// with which it appears, and halving finds that.
func errorLine(text string, err error) int {
	lines := strings.SplitAfter(text, "\n")
	return 1 + sort.Search(len(lines)-1, func(last int) bool {
		_, got := document([]byte(strings.Join(lines[:last+1], "")))
		return got != nil && syntaxText(got) == syntaxText(err)
	})
}

var yamlPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntaxText is an error of the YAML library without its own line number.
func syntaxText(err error) string {
	if errors.Is(err, errSecond) {
		return err.Error()
	}
	return "this is not valid YAML: " + clip(yamlPrefix.ReplaceAllString(err.Error(), ""))
}
