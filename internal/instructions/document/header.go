package document

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/plainyaml"
)

// header parses the YAML between the separator lines.
func (p *parser) header(text string, d *Document) {
	if !p.visible(text, 1) {
		return
	}
	root, err := plainyaml.Parse([]byte(text))
	switch {
	case err != nil:
		p.fail(err.Line, "%s", syntaxText(err))
		return
	case root == nil || root.Kind != yaml.MappingNode:
		p.fail(2, "the header must be a mapping, such as name: voice")
		return
	}
	if !p.lint(root) {
		return
	}
	given := make(map[string]bool)
	for k, v := range plainyaml.Pairs(root) {
		given[k.Value] = true
		p.key(k, v, d)
	}
	for _, key := range []string{"name", "class"} {
		if !given[key] {
			p.fail(1, "the key %s is missing", key)
		}
	}
}

// key parses one key of the header.
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
		p.fail(k.Line, "unknown key %q; the keys are name, class, tier, audience, variables, description and mcp_prompt", plaintext.Clip(k.Value, maxShown))
	}
}

func (p *parser) name(v *yaml.Node) string {
	name, ok := p.text(v)
	switch {
	case !ok:
		return ""
	case !ValidName(name):
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
		p.fail(v.Line, "%q is not one of %s", plaintext.Clip(text, maxShown), strings.Join(of, ", "))
	}
	return text
}

// text reads a scalar that is text. A bare number or truth value is refused, because
// readers differ in the text that it stands for.
func (p *parser) text(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		p.fail(n.Line, "this must be text; put it in quotes")
		return "", false
	}
	return n.Value, true
}

// lint refuses a header that two readers could read differently, and invisible
// characters. False: the tree must not be used.
func (p *parser) lint(root *yaml.Node) bool {
	ok := true
	look := func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode {
			ok = p.visible(n.Value, n.Line) && ok
		}
	}
	plainyaml.Walk{
		Key: func(_ string, k, v *yaml.Node) string {
			look(k)
			look(v)
			return ""
		},
		Item: func(_ string, _ int, item *yaml.Node) string {
			look(item)
			return ""
		},
		Fault: func(_ string, f plainyaml.Fault) {
			ok = false
			if f.First > 0 {
				p.fail(f.Node.Line, "duplicate key %q, first on line %d; keep one", plaintext.Clip(f.Node.Value, maxShown), f.First)
				return
			}
			p.fail(f.Node.Line, "%s", f.Text)
		},
	}.Tree(root)
	return ok
}

// syntaxText returns the text of a problem for a header that is no plain YAML.
func syntaxText(err *plainyaml.Error) string {
	switch err.Kind {
	case plainyaml.Second:
		return "a second YAML document begins here; the header is one"
	case plainyaml.Malformed, plainyaml.UnknownAlias:
		return "this is not valid YAML: " + plaintext.Clip(err.Text, maxShown)
	}
	return err.Text
}
